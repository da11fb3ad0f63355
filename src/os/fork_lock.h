// A mutex of the whole process that every heap must hold around fork(). Heaps prepare for a fork
// one after the other, and the first of them takes the mutex for all; the last to come back from
// the fork lets it go. It refuses to be used by two forking threads at once: whoever forks has,
// before this, locked something that every fork locks first.
#pragma once

#include "os/mutex.h"

namespace ts {

struct ForkLock {
  Mutex mutex;
  unsigned holds = 0;  // heaps between their prepare and their parent or child

  void prepare() noexcept TS_NO_ANALYSIS {
    if (holds++ == 0) mutex.lock();
  }
  void parent() noexcept TS_NO_ANALYSIS {
    if (--holds == 0) mutex.unlock();
  }
  // True in the last of the calls, when the mutex is free again.
  bool child() noexcept TS_NO_ANALYSIS {
    if (--holds != 0) return false;
    mutex.reset_after_fork();
    return true;
  }
};

}  // namespace ts
