// What a thread must not do under a lock, or with a heap in the middle of a change, and does at the end
// of a slow path instead: memory goes back by functions of the system that another library may have
// replaced (os.h), and what stands there may allocate, free, and wait for other threads that do.
#pragma once

#include "engine/page_heap.h"
#include "engine/types.h"

namespace ts::engine {

// Whether the heap's owner has any. Two loads: slow paths ask before they return.
inline bool has_deferred_work(const ThreadHeap& heap) noexcept {
  return heap.is_to_tend || page_heap.has_purges();
}

// Does all that is due, in the calling thread. Without a lock; nothing is done while the thread holds
// its own heap, or within a call of this function that it has not left.
[[gnu::noinline]] void do_deferred_work() noexcept;

// The same where only spans may have to go back.
inline void send_purges_if_any() noexcept {
  if (page_heap.has_purges()) [[unlikely]]
    do_deferred_work();
}

}  // namespace ts::engine
