// A mutex of the whole process that every heap must hold around fork(). Heaps prepare for a fork
// one after the other. The first of them takes the mutex for all; the last to come back from the
// fork releases it. Two threads that fork at the same time take turns.
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

  // True in the last of the calls, when the mutex is free again.
  bool child() noexcept TS_NO_ANALYSIS {
    if (--holds_ != 0) return false;
    holder_.store(nullptr, std::memory_order_relaxed);
    mutex.reset_after_fork();
    return true;
  }

 private:
  // An address that no other thread has. The child of a fork keeps that of the thread that forked.
  static const void* this_thread() noexcept {
    static constinit thread_local char self = 0;
    return &self;
  }

  // any: the thread between its prepare and its parent or child; it finds itself here only if it
  // wrote that, so relaxed suffices
  std::atomic<const void*> holder_{nullptr};
  unsigned holds_ = 0;  // mutex: heaps of that thread between prepare and parent or child
};

}  // namespace ts
