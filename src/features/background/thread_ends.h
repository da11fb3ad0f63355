// How many of the threads that had a heap have ended, for the background thread's own end.
#pragma once

#include "core/page_map.h"
#include "os/os.h"

namespace ts::engine {

// How many threads got a heap, and how many of them ended. Two that began prove that the process
// has threads. acquire, release: hooks::thread_ended pairs with has_to_end(), directly or by the
// background thread's rest.
inline constinit Atomic<std::uint32_t> threads_begun{0};
inline constinit Atomic<std::uint32_t> threads_ended{0};
// Not 0 if the process's first thread has ended, and others go on.
inline constinit Atomic<std::uint32_t> first_has_ended{0};

// The background thread's number to the kernel, 0 if there is none; relaxed: each reader looks
// again.
inline constinit Atomic<std::uint32_t> background_thread_id{0};

// Whether each thread that had a heap has ended. The C library ends a process with its last thread,
// which the background thread must not be for ever. (Ends are read first: none is of a thread that
// began later.) The kernel is asked only where the first thread has ended: else that one ends the
// process. The end of a thread is not told whose first call of malloc comes after its last
// destructors; but a process ends with its last thread, whether that had a heap or not.
inline bool have_all_ended() noexcept {
  const std::uint32_t ended = threads_ended.load(std::memory_order_acquire);
  if (ended == 0) return false;
  return ended == threads_begun.load(std::memory_order_acquire) ||
         (first_has_ended.load(std::memory_order_acquire) != 0 &&
          !os::has_thread_beside(background_thread_id.load(std::memory_order_relaxed)));
}

}  // namespace ts::engine
