// The background thread purges memory that the program leaves idle, even if no malloc or free is
// called, in rounds (purge_policy.h). The end of a round retires slabs that remote frees emptied.
// Slices of work purge part of what stayed dirty for the whole round. The slices are run by the
// background thread, at most one per process; or by ts_housekeep(), which an event loop calls. The
// thread rests on a futex while little is dirty, or the system refuses to take more; the release
// that makes more dirty wakes it.
//
//   hooks::thread_begins, request_missing_start -> request_attention (core/attention.h)
//   hooks::attend -> start_background_thread_if_wanted -> a thread: rest, or a slice -> wait
//   release -> choose_surplus -> hooks::dirty_memory_grew -> wake_background_thread (rest.h)
//   ts_housekeep -> housekeep -> scavenge, and a slice if there is no background thread
//
// TSMALLOC_BACKGROUND=auto starts it with the process's second heap; or, if the C library reports a
// second thread that never allocates, when fresh memory is taken or a slow path left work. It is
// never started at once, because the thread may be in free, which the C library calls under locks
// of its own, or hold a heap: the next malloc that refills a bin starts it. The background thread
// allocates nothing, and has no heap. The child of a fork has none until a second thread of its own
// gets a heap. The option may change at any time: `off` ends the thread, and `on` starts one. It
// also ends when all threads with heaps have ended: a program whose first thread calls pthread_exit
// ends with its last thread.
#pragma once

#include "base/atomic.h"
#include "features/background/background_rounds.h"

namespace ts::engine {

// Nonzero if the process has a background thread, or the system refused to start one. (A word,
// because riscv64 needs libatomic to exchange a byte.)
inline constinit Atomic<std::uint32_t> background_thread_starts{0};

// To be called when the process begins.
void init_background_work() noexcept;

// Requests attention if a background thread is wanted and missing. To be called when one may have
// become due: a thread got a heap, or a second thread that never allocates may have begun.
[[gnu::noinline]] void request_start() noexcept;
inline void request_missing_start() noexcept {
  if (background_thread_starts.load(std::memory_order_relaxed) == 0) request_start();
}

// Starts one if it is wanted and there is none. Free (core/hooks.h).
void start_background_thread_if_wanted() noexcept;

// To be called, anywhere, when TSMALLOC_BACKGROUND may have changed: the thread soon starts or ends
// accordingly.
void follow_background_option() noexcept;

// ts_housekeep(): the next step for the calling thread's heap, and for the process if no background
// thread does it. Returns in how many milliseconds to call it again; -1 if that is not necessary.
int housekeep() noexcept;

// In the child of a fork, under all locks.
void forget_background_thread() noexcept;

}  // namespace ts::engine
