// All that the heap knows but for its tables: one mapping, zero-filled at first, which is valid.
#pragma once

#include "secure/class_heap.h"
#include "secure/large_blocks.h"
#include "secure/space.h"

namespace ts::secure {

struct State {
  ClassHeap heaps[max_arenas][class_count];
  LargeBlocks large;
};
static_assert(sizeof(State) <= state_bytes);

}  // namespace ts::secure
