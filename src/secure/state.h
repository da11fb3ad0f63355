// The heap except for its tables: one mapping, valid when zero-filled.
#pragma once

#include <cstdint>

#include "secure/class_heap.h"
#include "secure/large_blocks.h"
#include "secure/mappings.h"
#include "secure/size_classes.h"
#include "secure/space.h"

namespace ts::secure {

struct State {
  ClassHeap heaps[max_arenas][class_count];
  LargeBlocks large;
};
static_assert(sizeof(State) + sizeof(Counts) <= state_bytes);

inline ClassHeap& heap_of(unsigned region) noexcept {
  return roots.state->heaps[region / regions_per_arena][region % regions_per_arena];
}

// The class heap that owns an address.
struct Home {
  ClassHeap* heap;      // null: the address is in no region
  unsigned size_class;  // no_class if `heap` is null
};
inline Home home_of(const void* p) noexcept {
  const unsigned region = region_of(p);
  const unsigned size_class = region % regions_per_arena;
  if (region == UINT32_MAX || size_class >= class_count) return {nullptr, no_class};
  return {&heap_of(region), size_class};
}

template <class Visit>
void for_each_heap(Visit visit) noexcept {
  for (unsigned arena = 0; arena < roots.arenas; ++arena) {
    for (ClassHeap& heap : roots.state->heaps[arena]) visit(heap, arena);
  }
}

}  // namespace ts::secure
