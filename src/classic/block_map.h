// A walk of a classic heap for a picture, block by block. Only counted libraries have it.
#pragma once

#include "base/heap_map.h"
#include "classic/variants.h"

namespace ts::classic {

// Whether a walk excludes changes by other threads; the other strategies require that no thread is
// inside.
template <class Heap>
inline constexpr bool walk_is_safe = false;
template <class Fit>
inline constexpr bool walk_is_safe<Lock<Fit>> = true;
template <class Fit>
inline constexpr bool walk_is_safe<ReadWrite<Fit>> = true;
template <class Fit>
inline constexpr bool walk_is_safe<Arenas<Fit>> = true;

template <class Heap>
constexpr bool map_walk_is_safe(const Heap*) noexcept {
  return walk_is_safe<Heap>;
}

// Calls `visit` for every block of every chunk; false if a call ended the walk.
template <class Heap>
bool walk_map(Heap& heap, MapVisitor visit, void* argument) noexcept {
  struct Caller {
    MapVisitor visit;
    void* argument;
  } caller{visit, argument};
  return heap.walk(
      [](const BlockView& block, void* to) {
        const auto& [call, its_argument] = *static_cast<const Caller*>(to);
        const std::size_t bytes = block.bytes + tag_bytes;
        const bool is_used = block.state == BlockState::used;
        const MapState state = is_used                           ? MapState::used
                               : block.state == BlockState::free ? MapState::free
                                                                 : MapState::cached;
        return call({address_of(block.payload) - tag_bytes, bytes, is_used ? bytes : 0, bytes,
                     state, block.owner},
                    its_argument);
      },
      &caller);
}

}  // namespace ts::classic
