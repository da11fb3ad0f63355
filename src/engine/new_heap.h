// The birth of a heap.
#pragma once

#include "engine/types.h"

namespace ts::engine {

// One more heap, of a thread or, with arena_bit, an arena; null without memory. It leaves room for as
// many more: for the common heap, which serves the threads that get none.
ThreadHeap* new_heap(PageMapEntry kind = 0, std::uint32_t spare = 1) noexcept;

}  // namespace ts::engine
