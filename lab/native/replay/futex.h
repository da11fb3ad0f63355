// Sleeping until another thread changes a word, and small primitives built on that.
//
// Threads of a replay wait for each other thousands of times, on machines with fewer processors
// than threads, so none may spin for long. All words are private to the process.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

namespace ts::replay {

static_assert(std::atomic<std::uint32_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint32_t>) == 4);

// Sleeps if the word is `expected`, until it is woken, or spuriously.
inline void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t expected) {
  // Every error (the word has changed, a signal) means: check again.
  (void)syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

inline void futex_wake_all(const std::atomic<std::uint32_t>& word) {
  (void)syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How often to check before going to sleep: some microseconds, or not at all if no other thread can
// run meanwhile.
inline int spins_before_sleep() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  const bool is_known = sched_getaffinity(0, sizeof usable, &usable) == 0;
  return is_known && CPU_COUNT(&usable) == 1 ? 0 : 100;
}

// A gate that is opened once. A thread that passes it sees what was done before it was opened: the
// store is a release, the load an acquire.
class Gate {
 public:
  void open() {
    word_.store(1, std::memory_order_release);
    futex_wake_all(word_);
  }
  void pass() const {
    while (word_.load(std::memory_order_acquire) == 0) futex_wait(word_, 0);
  }

 private:
  std::atomic<std::uint32_t> word_{0};
};

// A sleeping lock. 0: free, 1: taken, 2: taken, and threads may be asleep. The exchange that takes
// it is an acquire and pairs with the release that frees it.
class Lock {
 public:
  void lock() {
    std::uint32_t seen = 0;
    if (word_.compare_exchange_strong(seen, 1, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
      return;
    }
    while (word_.exchange(2, std::memory_order_acquire) != 0) futex_wait(word_, 2);
  }
  void unlock() {
    if (word_.exchange(0, std::memory_order_release) == 2) futex_wake_all(word_);
  }

 private:
  std::atomic<std::uint32_t> word_{0};
};

}  // namespace ts::replay
