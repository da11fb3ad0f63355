// Threads and heaps: a thread gets a heap with its first call, and abandons it when it ends.
#pragma once

#include "engine/types.h"

namespace ts::engine {

// Gives the calling thread an abandoned heap or a new one. Null without memory, or where the system
// would not report the thread's end, so that no thread would abandon the heap.
ThreadHeap* attach_heap() noexcept;

}  // namespace ts::engine
