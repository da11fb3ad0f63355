// Memory that the program leaves idle goes back although no malloc or free comes by, in rounds
// (purge_policy.h). The end of a round retires what remote frees emptied. Slices of work purge a
// part of what stayed dirty all through the round. A slice is the work of a background thread, one
// thread of a process; or of ts_housekeep(), which a program calls that waits for events. The
// background thread rests on a futex while little is dirty, or the system takes no more; the
// release that leaves more wakes it.
//
//   hooks::thread_begins, request_missing_start -> request_attention (core/attention.h)
//   hooks::attend -> start_background_thread_if_wanted -> a thread: rest, or a slice -> wait
//   release -> purge_surplus -> wake_for_work
//   ts_housekeep -> housekeep -> scavenge, and a slice where there is no background thread
//
// TSMALLOC_BACKGROUND=auto starts it with the process's second heap; or, where the C library tells
// that there is a second thread which never allocates, when fresh memory is taken or a slow path
// left work. Never at once, since the thread may be in free, which the C library calls with locks
// of its own, or hold a heap: the next malloc that refills a bin starts it. The thread allocates
// nothing, and it has no heap. The child of a fork has none, until a second thread of its own gets
// a heap. The option may change at any time: `off` ends the thread, and `on` starts one. It also
// ends when all threads with heaps have: a program whose first thread calls pthread_exit ends with
// its last thread.
#pragma once

#include "base/atomic.h"
#include "features/background/background_rounds.h"

namespace ts::engine {

// Not 0 if the process has a background thread, or the system refused it. (Not a byte, which
// riscv64 exchanges by a library.)
inline constinit Atomic<std::uint32_t> background_thread_starts{0};

// To be called when the process begins.
void init_background_work() noexcept;

// Asks for attention if a background thread is missing. To be called where one may have become due:
// a thread got a heap, or a second thread may have begun that never allocates.
[[gnu::noinline]] void request_start() noexcept;
inline void request_missing_start() noexcept {
  if (background_thread_starts.load(std::memory_order_relaxed) == 0) request_start();
}

// Starts one if that is wanted and there is none. Free (core/hooks.h).
void start_background_thread_if_wanted() noexcept;

// To be called when TSMALLOC_BACKGROUND may have changed, anywhere: one that is due now starts
// soon, one that is off ends soon.
void follow_background_option() noexcept;

// ts_housekeep(): the next step of the calling thread's heap, and of the process where no
// background thread does it. Returns in how many milliseconds another is due; -1 where none is.
int housekeep() noexcept;

// In the child of a fork, under all locks.
void forget_background_thread() noexcept;

}  // namespace ts::engine
