// One heap for the threads that have none and get none. Those are ending, and have abandoned their
// own heap, or the system would not report their end, or has no addresses for another heap. One call
// at a time.
#pragma once

#include "engine/types.h"
#include "os/mutex.h"

namespace ts::engine {

inline constinit Mutex common_lock;

// A block of the class from a heap that no thread owns, under its lock; without its mark; null without
// memory.
void* allocate_from(ThreadHeap& heap, unsigned size_class) noexcept;

// The same of the common heap.
void* allocate_from_common(unsigned size_class) noexcept;

// Flushes the common heap's caches.
void flush_common_heap() noexcept;

bool is_common(const ThreadHeap& heap) noexcept TS_REQUIRES(common_lock);

}  // namespace ts::engine
