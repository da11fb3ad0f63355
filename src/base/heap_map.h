// A heap's memory as a walk reports it for a picture, piece by piece. A piece is a block with its
// header or, if blocks have none, a span of pages.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts {

enum class MapState : std::uint8_t {
  used,
  free,
  cached,  // freed, and kept by a thread
  mixed,   // partly in use
};

struct MapExtent {
  std::uintptr_t address;
  std::size_t bytes;
  std::size_t used_bytes;
  std::size_t block_bytes;  // of each block in it; 0 if there are none
  MapState state;
  std::uint32_t owner;  // arena or thread heap; 0 if there is only one, or none
};

// Called in address order within each contiguous piece of memory. Returns false to end the walk.
using MapVisitor = bool (*)(const MapExtent& extent, void* argument);

}  // namespace ts
