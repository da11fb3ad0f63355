// A mutex of the process that every heap holds around fork(). Heaps prepare for a fork one after
// the other: the first takes the mutex for all, and the last one to return from the fork releases
// it. Concurrent forks take turns.
#pragma once

#include "os/mutex.h"

namespace ts {

class ForkLock {
 public:
  Mutex mutex;

  void prepare() noexcept TS_NO_ANALYSIS {
    if (holder_.load(std::memory_order_relaxed) != this_thread()) {
      mutex.lock();
      holder_.store(this_thread(), std::memory_order_relaxed);
    }
    ++holds_;
  }

  void parent() noexcept TS_NO_ANALYSIS {
    if (--holds_ != 0) return;
    holder_.store(nullptr, std::memory_order_relaxed);
    mutex.unlock();
  }

  // True in the last of the calls, once the mutex is free again.
  bool child() noexcept TS_NO_ANALYSIS {
    if (--holds_ != 0) return false;
    holder_.store(nullptr, std::memory_order_relaxed);
    mutex.reset_after_fork();
    return true;
  }

 private:
  // An address unique to the thread. The child of a fork has that of the thread that forked.
  static const void* this_thread() noexcept {
    static constinit thread_local char self = 0;
    return &self;
  }

  // written by the thread between its prepare and its parent or child; a thread finds itself here
  // only if it wrote that itself, so relaxed suffices
  std::atomic<const void*> holder_{nullptr};
  unsigned holds_ = 0;  // mutex: heaps of that thread between prepare and parent or child
};

}  // namespace ts
