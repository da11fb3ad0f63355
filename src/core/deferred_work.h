// Work that waits for the end of a slow path, where the thread has no lock and no hold: what a
// feature left for the heap's owner (hooks::attend_to_heap), and system calls that other libraries
// may see.
#pragma once

#include "core/page_heap.h"
#include "core/types.h"

namespace ts::engine {

// ---- purges ----

// Memory goes back by functions of the system that another library may have replaced (os.h). Its
// replacement may allocate, free, and wait for other threads that do.

// One call at a time of what follows, in each thread: what is deferred within it waits for its end.
class DeferredCall {
 public:
  // `heap` is the calling thread's own, null without one.
  explicit DeferredCall(ThreadHeap* heap) noexcept;
  ~DeferredCall();
  DeferredCall(const DeferredCall&) = delete;
  DeferredCall& operator=(const DeferredCall&) = delete;

  // False within another one, or while the thread holds its heap.
  bool may_go_on() const noexcept { return calls_ != nullptr; }

 private:
  Atomic<std::uint32_t>* calls_;
};

// Sends what purges chose (page_heap.h). Without a lock; nothing is sent while the thread holds its
// heap.
[[gnu::noinline]] void send_purges() noexcept;
inline void send_purges_if_any() noexcept {
  if (page_heap.has_purges()) [[unlikely]]
    send_purges();
}

// ---- at the end of a slow path ----

// Whether the heap's owner has any. Two loads: slow paths ask before they return.
inline bool has_deferred_work(const ThreadHeap& heap) noexcept {
  return heap.is_to_scavenge || page_heap.has_purges();
}

// Does all that is due, in the calling thread, which owns a heap and has no lock.
[[gnu::noinline]] void do_deferred_work() noexcept;

}  // namespace ts::engine
