// Work deferred to the end of a slow path, where the thread holds no lock and no heap: what a
// feature left for the heap's owner (hooks::attend_to_heap), and system calls that other libraries
// may see.
#pragma once

#include "core/page_heap.h"
#include "core/types.h"

namespace ts::engine {

// ---- purges ----

// Memory is returned to the system through functions that another library may have replaced (os.h).
// The replacement may allocate, free, and wait for other threads that do.

// One of these calls at a time in each thread: what is deferred within it is done at its end.
class DeferredCall {
 public:
  // `heap` is the calling thread's own; null if it has none.
  explicit DeferredCall(ThreadHeap* heap) noexcept;
  ~DeferredCall();
  DeferredCall(const DeferredCall&) = delete;
  DeferredCall& operator=(const DeferredCall&) = delete;

  // False within another such call, or while the thread holds its heap.
  bool may_go_on() const noexcept { return calls_ != nullptr; }

 private:
  Atomic<std::uint32_t>* calls_;
};

// Sends what purges chose (page_heap.h). Call without a lock; sends nothing while the thread holds
// its heap.
[[gnu::noinline]] void send_purges() noexcept;
inline void send_purges_if_any() noexcept {
  if (page_heap.has_purges()) [[unlikely]]
    send_purges();
}

// ---- at the end of a slow path ----

// Whether the heap's owner has deferred work. Two loads: slow paths check before they return.
inline bool has_deferred_work(const ThreadHeap& heap) noexcept {
  return heap.is_to_scavenge || page_heap.has_purges();
}

// Does all that is due. The calling thread owns a heap and has no lock.
[[gnu::noinline]] void do_deferred_work() noexcept;

}  // namespace ts::engine
