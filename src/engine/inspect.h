// Walks and measures for reports and pictures: spans, slabs and blocks, with their states.
#pragma once

#include "base/heap_like.h"
#include "base/heap_map.h"
#include "engine/page_heap.h"

namespace ts::engine {

// Sizes in bytes. Blocks in the bins of other threads count as in use.
HeapMeasures measure() noexcept;

// Calls `visit` for every block of slabs, every large block and every free span, by address; false
// if a call ended the walk. No other thread may be in the engine.
bool walk_blocks(BlockVisitor visit, void* argument) noexcept;

// A span as it is at the moment; of a slab, blocks in bins and pending frees count as used.
inline MapExtent map_extent_of(const Span& span) noexcept {
  const std::size_t bytes = std::size_t{span.pages} * page_bytes;
  const PageMapEntry entry = span_entry(span);
  const auto of = [&](MapState state, std::size_t used_bytes) {
    return MapExtent{address_of(memory_of(&span)), bytes, used_bytes, state, heap_number(entry)};
  };
  if (span.state == SpanState::slab) {
    const std::size_t used = span.used.load(std::memory_order_relaxed);
    return of(MapState::mixed, used * size_classes[span.size_class].block_bytes);
  }
  if (span.state == SpanState::large)
    return entry != 0 ? of(MapState::used, bytes) : of(MapState::cached, 0);
  return of(MapState::free, 0);
}

// Calls `visit` for every span, under the lock of the page heap, while other threads go on. Only a
// slab's owner knows which blocks are free, but `used` is atomic. False if a call ended the walk.
inline bool walk_spans(MapVisitor visit, void* argument) noexcept {
  bool goes_on = true;
  page_heap.for_each(
      [&](const Span& span) { goes_on = goes_on && visit(map_extent_of(span), argument); });
  return goes_on;
}

}  // namespace ts::engine
