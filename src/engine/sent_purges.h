// The end of a slow path, where a thread has no lock and no hold: memory goes back by functions of the
// system that another library may have replaced (os.h). What stands there may allocate, free, and wait for
// other threads that do.
#pragma once

#include "engine/page_heap.h"
#include "engine/types.h"

namespace ts::engine {

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

// Sends what purges chose (page_heap.h). Without a lock; nothing is sent while the thread holds its heap.
[[gnu::noinline]] void send_purges() noexcept;
inline void send_purges_if_any() noexcept {
  if (page_heap.has_purges()) [[unlikely]]
    send_purges();
}

}  // namespace ts::engine
