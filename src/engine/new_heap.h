// The birth of a heap.
#pragma once

#include "engine/types.h"

namespace ts::engine {

// One more heap; null without memory.
ThreadHeap* new_heap() noexcept;

}  // namespace ts::engine
