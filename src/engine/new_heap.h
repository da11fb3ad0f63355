// The birth of a heap.
#pragma once

#include "engine/types.h"

namespace ts::engine {

// One more heap, of a thread or, with arena_bit, an arena; null without memory, also where there is
// not room for `spare` further ones. The common heap takes the last room, and so leaves none.
ThreadHeap* new_heap(PageMapEntry kind = 0, std::uint32_t spare = 1) noexcept;

}  // namespace ts::engine
