// Memory that the program leaves idle goes back although no malloc or free comes by, in rounds
// (purge_policy.h). The end of a round retires what remote frees emptied. Slices of work purge a
// part of what stayed dirty all through the round. A slice is the work of a housekeeper, one thread
// of a process; or of ts_housekeep(), which a program calls that waits for events. The housekeeper
// rests on a futex while little is dirty, or the system takes no more; the release that leaves more
// wakes it.
//
//   allocate_without_heap -> start_housekeeper_if_due -> a thread: rest, or a slice -> wait
//   release_without_heap -> put_off_start; allocate_slow, allocate_from_page_heap -> start_housekeeper_now
//   release -> purge_surplus -> wake_housekeeper
//   ts_housekeep -> housekeep -> tend, and a slice where there is no housekeeper
//
// TSMALLOC_BACKGROUND=auto starts it with the process's second heap, in malloc; or, where the C library
// tells that there is a second thread which never allocates, with the next malloc that takes fresh
// memory or has deferred work. Never in free, which the C library calls with locks of its
// own: where a thread gets its heap in free, the next malloc that refills a bin starts it. The
// thread allocates nothing, and it has no heap. The child of a fork has none, until a second thread
// of its own gets a heap. The option may change at any time: `off` ends the thread, and `on` starts
// one. It also ends when all threads with heaps have: a program whose first thread calls pthread_exit
// ends with its last thread.
#pragma once

#include "engine/housekeeping_rounds.h"
#include "engine/put_off.h"

namespace ts::engine {

// To be called when a thread gets a heap, and when it ends. With the last of them ends the
// housekeeper.
void note_thread_begins() noexcept;
void note_thread_ends() noexcept;

// To be called in malloc, without a lock or a hold, by a thread that got a heap.
void start_housekeeper_if_due() noexcept;

// To be called when the process begins.
void begin_housekeeping() noexcept;

// The same where work was deferred: one may be due since a second thread began that never allocates.
[[gnu::noinline]] void start_missing_housekeeper() noexcept;
inline void start_housekeeper_if_missing() noexcept {
  if (housekeeper_starts.load(std::memory_order_relaxed) == 0) start_missing_housekeeper();
}

// To be called in free by a thread that got a heap.
void put_off_start() noexcept;
// To be called in malloc, without a lock or a hold, where a start was put off. False if not now.
bool start_housekeeper_now() noexcept;

// To be called when an option may have changed, anywhere: it takes no lock and starts no thread. A
// housekeeper that is due now starts as one whose start was put off; one that is off ends soon. Other
// limits count from the next growth on, and `TSMALLOC_THP=never` for all memory at once.
void follow_options_soon() noexcept;

// ts_housekeep(): the next step of the calling thread's heap, and of the process where no
// housekeeper does it. Returns in how many milliseconds another is due; -1 where none is.
int housekeep() noexcept;

// The same in a call of the program: a housekeeper that is due starts at once.
void follow_options() noexcept;

// In the child of a fork, under all locks.
void forget_housekeeper() noexcept;

}  // namespace ts::engine
