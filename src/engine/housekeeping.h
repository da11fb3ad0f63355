// Memory that the program leaves idle goes back although no call comes by. A housekeeper is one
// thread of a process. It rests on a futex while little is dirty; the release that leaves more
// wakes it. Then it works in rounds (purge_policy.h): it retires what remote frees emptied, purges
// a part of what stayed dirty all through the round, in slices, and rests once little is dirty, or
// the system takes no more.
//
//   allocate_without_heap -> start_housekeeper_if_due -> a thread: rest, or a round
//   release -> purge_surplus -> wake_housekeeper
//
// TSMALLOC_BACKGROUND=auto starts it with the process's second heap, in malloc: another thread
// proves that the process may have more. Never in free, which the C library calls with locks of its
// own. The thread allocates nothing, and it has no heap. The child of a fork has none, until a
// second thread of its own gets a heap.
#pragma once

#include "base/atomic.h"
#include "os/mutex.h"

namespace ts::engine {

// The housekeeper works under this lock, a slice at a time. So a fork, which takes it, loses no
// memory that is on its way to the page heap or to the system.
inline constinit Mutex housekeeping_lock;

// To be called in malloc, without a lock or a hold, by a thread that got a heap.
void start_housekeeper_if_due() noexcept;

// In the child of a fork, under all locks.
void forget_housekeeper() noexcept;

}  // namespace ts::engine
