// Mutexes that the checker schedules, found before src/os/mutex.h in the include path.
#pragma once

#include <source_location>

#include "base/platform.h"
#include "checker.h"

namespace ts {

class TS_CAPABILITY("mutex") Mutex {
  using Where = std::source_location;

 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock(Where where = Where::current()) noexcept TS_ACQUIRE() {
    testing::detail::lock(this, where);
  }
  bool try_lock(Where where = Where::current()) noexcept TS_TRY_ACQUIRE(true) {
    return testing::detail::try_lock(this, where);
  }
  void unlock(Where where = Where::current()) noexcept TS_RELEASE() {
    testing::detail::unlock(this, where);
  }
  // Around a fork. The models have only its child, in one thread.
  void lock_for_fork() noexcept TS_NO_ANALYSIS {}
  void unlock_after_fork() noexcept TS_NO_ANALYSIS {}
  void reset_after_fork() noexcept TS_NO_ANALYSIS {}

 private:
  [[maybe_unused]] std::uint64_t place_ = 0;  // the checker keeps its state by this address
};

template <class Lock>
class TS_SCOPED_CAPABILITY Guard {
 public:
  explicit Guard(Lock& lock, std::source_location where = std::source_location::current()) noexcept
      TS_ACQUIRE(lock)
      : lock_{lock}, where_{where} {
    lock_.lock(where);
  }
  ~Guard() TS_RELEASE() { lock_.unlock(where_); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Lock& lock_;
  std::source_location where_;
};

}  // namespace ts
