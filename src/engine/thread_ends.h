// How many of the threads that had a heap have ended, for the housekeeper's own end.
#pragma once

#include "engine/page_map.h"
#include "os/os.h"

namespace ts::engine {

// How many threads got a heap, and how many of them ended. Two that began prove that the process has
// threads. acquire, release: note_thread_ends pairs with has_to_end(), directly or by the
// housekeeper's rest.
inline constinit Atomic<std::uint32_t> threads_begun{0};
inline constinit Atomic<std::uint32_t> threads_ended{0};
// Not 0 if the process's first thread has ended, and others go on.
inline constinit Atomic<std::uint32_t> first_has_ended{0};

// Whether a thread that had a heap goes on, as the kernel knows. The end of one is not told whose
// first call of malloc comes after its last destructors.
inline bool has_any_thread() noexcept {
  bool is_found = false;
  for_each_heap([&](const ThreadHeap& heap) {
    if (is_found || is_arena(heap) || is_abandoned(heap)) return;
    const std::uint32_t thread = heap.thread.load(std::memory_order_relaxed);
    is_found = thread != 0 && os::has_thread(thread);
  });
  return is_found;
}

// Whether each thread that had a heap has ended. The C library ends a process with its last thread,
// which the housekeeper must not be for ever. (Ends are read first: none is of a thread that began
// later.) The kernel is asked only where the first thread has ended: else that one ends the process.
inline bool have_all_ended() noexcept {
  const std::uint32_t ended = threads_ended.load(std::memory_order_acquire);
  if (ended == 0) return false;
  return ended == threads_begun.load(std::memory_order_acquire) ||
         (first_has_ended.load(std::memory_order_acquire) != 0 && !has_any_thread());
}

}  // namespace ts::engine
