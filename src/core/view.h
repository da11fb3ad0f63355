// Walks and measurements for reports and pictures: spans, slabs and blocks, with their states.
#pragma once

#include "base/heap_like.h"
#include "base/heap_map.h"
#include "core/page_heap.h"

namespace ts::engine {

// Sizes in bytes, while other threads run: each was true at some moment, and at rest they are
// exact.
HeapMeasures measure() noexcept;

// Calls `visit` for every block of slabs, every large block and every free span, in address order;
// false if a call ended the walk, or there is no memory for it. No other thread may be in the
// engine.
bool walk_blocks(BlockVisitor visit, void* argument) noexcept;

// Finds the block, in use or not, that contains the address, and its span. False if there is none:
// the address is not the engine's, is in a free span, or after the last block of a slab. A remote
// free counts once its batch is sent.
bool find_block(const void* address, BlockView& block, MapExtent& span) noexcept;

// The span at this moment; in a slab, blocks in bins and pending frees count as used.
inline MapExtent map_extent_of(const Span& span) noexcept {
  const std::size_t bytes = std::size_t{span.pages} * page_bytes;
  const PageMapEntry entry = span_entry(span);
  const auto of = [&](MapState state, std::size_t used_bytes, std::size_t block_bytes) {
    return MapExtent{
        address_of(memory_of(&span)), bytes, used_bytes, block_bytes, state, heap_number(entry)};
  };
  if (span.state == SpanState::slab) {
    const std::size_t block_bytes = size_classes[span.size_class].block_bytes;
    return of(MapState::mixed, used(span) * block_bytes, block_bytes);
  }
  if (span.state == SpanState::large && entry != 0) return of(MapState::used, bytes, bytes);
  return of(span.state == SpanState::free ? MapState::free : MapState::cached, 0, 0);
}

// Calls `visit` for every span, as they were at one moment, while other threads run. Only a slab's
// owner knows which blocks are free, but `used` is atomic. False if a call ended the walk, or there
// is no memory for it.
bool walk_spans(MapVisitor visit, void* argument) noexcept;

}  // namespace ts::engine
