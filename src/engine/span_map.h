// The engine as a picture shows it: span by span. Which blocks of a slab are free is known to the
// slab's owner alone; how many are not home in it is an atomic number, so that this may be called
// while other threads go on. Only counted libraries do.
#pragma once

#include "base/heap_map.h"
#include "engine/engine.h"

namespace ts::engine {

constexpr bool map_walk_is_safe(const Engine*) noexcept { return true; }

// What a span is at the moment; of a slab, blocks in bins and on their way home count as used.
inline MapExtent map_extent_of(const Span& span) noexcept {
  const std::size_t bytes = std::size_t{span.granules} * granule_bytes;
  const Entry entry = layout.map[number_of(&span)].load(std::memory_order_relaxed);
  const auto of = [&](MapState state, std::size_t used_bytes) {
    return MapExtent{address_of(memory_of(&span)), bytes, used_bytes, state, entry >> heap_shift};
  };
  if (span.state == SpanState::slab) {
    const std::size_t used = span.used.load(std::memory_order_relaxed);
    return of(MapState::mixed, used * size_classes[span.size_class].block_bytes);
  }
  if (span.state == SpanState::large)
    return entry != 0 ? of(MapState::used, bytes) : of(MapState::cached, 0);
  return of(MapState::free, 0);
}

// Calls `visit` for every span, under the lock of the page heap; false if a call ended the walk.
inline bool walk_map(Engine&, MapVisitor visit, void* argument) noexcept {
  bool goes_on = true;
  page_heap.for_each(
      [&](const Span& span) { goes_on = goes_on && visit(map_extent_of(span), argument); });
  return goes_on;
}

}  // namespace ts::engine
