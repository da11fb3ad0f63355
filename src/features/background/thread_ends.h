// How many threads with heaps have ended, so that the background thread knows when to end.
#pragma once

#include "core/page_map.h"
#include "os/os.h"

namespace ts::engine {

// How many threads got a heap, and how many of them ended. Once two have begun, the process has
// threads. acquire, release: hooks::thread_ended pairs with has_to_end(), directly or through the
// background thread's rest.
inline constinit Atomic<std::uint32_t> threads_begun{0};
inline constinit Atomic<std::uint32_t> threads_ended{0};
// Nonzero if the process's first thread has ended while others continue.
inline constinit Atomic<std::uint32_t> first_has_ended{0};

// The background thread's ID in the kernel, 0 if there is none; relaxed: readers check again.
inline constinit Atomic<std::uint32_t> background_thread_id{0};

// Whether each thread that had a heap has ended. The C library ends a process with its last thread,
// so the background thread must not remain as that one. (Ends are read first: none of them belongs
// to a thread that began later.) The kernel is asked only if the first thread has ended; otherwise
// that one ends the process. The end of a thread whose first malloc comes after its last
// destructors is not reported; but a process ends with its last thread, with or without a heap.
inline bool have_all_ended() noexcept {
  const std::uint32_t ended = threads_ended.load(std::memory_order_acquire);
  if (ended == 0) return false;
  return ended == threads_begun.load(std::memory_order_acquire) ||
         (first_has_ended.load(std::memory_order_acquire) != 0 &&
          !os::has_thread_beside(background_thread_id.load(std::memory_order_relaxed)));
}

}  // namespace ts::engine
