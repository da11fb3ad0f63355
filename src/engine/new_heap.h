// The birth of a heap.
#pragma once

#include "engine/types.h"

namespace ts::engine {

// One more heap, of a thread or, with arena_bit, an arena; null without memory.
ThreadHeap* new_heap(PageMapEntry kind = 0) noexcept;

}  // namespace ts::engine
