// Locks built on os::wait and os::wake. They work before main and in a zero-initialised static
// heap. Not recursive, no owner recorded; reset in the child of a fork. Nothing here allocates.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/event_counts.h"
#include "base/platform.h"
#include "os/counting.h"
#include "os/os.h"

namespace ts {

// How often a thread spins before it parks: about a microsecond, the length of a few short critical
// sections.
inline constexpr int spin_rounds = 100;

// Passes on whether a lock was acquired, counting it if so.
inline bool counted(bool acquired) noexcept {
  if constexpr (counting) {
    if (acquired) count_event(Event::lock_acquisitions);
  }
  return acquired;
}

// A mutex in one futex word (Drepper, "Futexes are tricky", 2011, mutex 3).
class TS_CAPABILITY("mutex") Mutex {
 public:
  constexpr Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  bool try_lock() noexcept TS_TRY_ACQUIRE(true) {
    std::uint32_t expected = unlocked;
    // acquire: sees all that the last unlock (release) published
    return counted(word_.compare_exchange_strong(expected, locked, std::memory_order_acquire,
                                                 std::memory_order_relaxed));
  }

  void lock() noexcept TS_ACQUIRE() {
    if (!try_lock()) [[unlikely]]
      lock_slow();
  }

  void unlock() noexcept TS_RELEASE() {
    // release: publishes the critical section to the next acquire
    if (word_.exchange(unlocked, std::memory_order_release) == contended) [[unlikely]]
      os::wake(word_, 1);
  }

  // For reading a stopped process from outside, or in a process with one thread.
  bool is_locked() const noexcept { return word_.load(std::memory_order_relaxed) != unlocked; }

  // Called before a fork, and after it in the parent. In a single-threaded process, a locked mutex
  // belongs to that thread itself: a signal handler interrupted it, perhaps inside a fork, and now
  // forks. The thread continues when the handler returns, in parent and child, so the mutex stays
  // locked.
  void lock_for_fork() noexcept TS_NO_ANALYSIS {
    if (os::has_one_thread()) {
      is_interrupted_ = !try_lock();
    } else {
      lock();
      is_interrupted_ = false;
    }
  }
  void unlock_after_fork() noexcept TS_NO_ANALYSIS {
    if (!is_interrupted_) return unlock();
    is_interrupted_ = false;
  }

  // In the child of a fork, which has no other thread, the mutex is free unless its holder is the
  // interrupted thread.
  void reset_after_fork() noexcept TS_NO_ANALYSIS {
    if (!is_interrupted_) word_.store(unlocked, std::memory_order_relaxed);
    is_interrupted_ = false;
  }

 private:
  static constexpr std::uint32_t unlocked = 0;
  static constexpr std::uint32_t locked = 1;
  static constexpr std::uint32_t contended = 2;  // locked, and a thread may be parked

  void lock_slow() noexcept TS_NO_ANALYSIS {
    [[maybe_unused]] const CountedWait wait{};
    for (int round = 0; round < spin_rounds; ++round) {
      if (word_.load(std::memory_order_relaxed) == unlocked && try_lock()) return;
      spin_pause();
    }
    while (word_.exchange(contended, std::memory_order_acquire) != unlocked) {
      if constexpr (counting) count_event(Event::lock_parks);
      os::wait(word_, contended);
    }
    counted(true);
  }

  std::atomic<std::uint32_t> word_{unlocked};
  bool is_interrupted_ = false;  // around a fork: the forking signal handler interrupted its holder
};

// A writer-preferring reader-writer lock with two rules: a reader enters when no writer is writing
// or waiting; a writer enters when nobody reads or writes.
//
//   word_:   waiting writers (16 bits) | writing (1 bit) | readers (15 bits)
//
// Writers are counted in the word from the moment they ask, so a stream of readers cannot starve
// them. The word is seq_cst where it pairs with parked_readers_: a reader announces that it will
// park and then re-reads the word; an unlocking writer clears the word and then reads the
// announcement. At least one of the two sees the other (Dekker), so no wake-up is lost.
class TS_CAPABILITY("shared mutex") SharedMutex {
 public:
  constexpr SharedMutex() = default;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;

  void lock_shared() noexcept TS_ACQUIRE_SHARED() {
    if (!try_lock_shared()) [[unlikely]]
      lock_shared_slow();
  }

  bool try_lock_shared() noexcept TS_NO_ANALYSIS {
    std::uint32_t word = word_.load(std::memory_order_relaxed);
    while ((word & (writing | waiting_mask)) == 0) {
      // acquire: pairs with the last writer's unlock (release)
      if (word_.compare_exchange_weak(word, word + one_reader, std::memory_order_acquire,
                                      std::memory_order_relaxed))
        return counted(true);
    }
    return false;
  }

  void unlock_shared() noexcept TS_RELEASE_SHARED() {
    // release: our reads stay before the next writer's acquire
    const std::uint32_t before = word_.fetch_sub(one_reader, std::memory_order_release);
    const bool last_reader = (before & readers_mask) == one_reader;
    if (last_reader && (before & waiting_mask) != 0) os::wake(word_, 1, writers);
  }

  bool try_lock() noexcept TS_TRY_ACQUIRE(true) {
    std::uint32_t expected = 0;
    return counted(word_.compare_exchange_strong(expected, writing, std::memory_order_acquire,
                                                 std::memory_order_relaxed));
  }

  void lock() noexcept TS_ACQUIRE() {
    if (!try_lock()) [[unlikely]]
      lock_slow();
  }

  void unlock() noexcept TS_RELEASE() {
    const std::uint32_t before = word_.fetch_and(~writing, std::memory_order_seq_cst);
    if ((before & waiting_mask) != 0) {
      os::wake(word_, 1, writers);
    } else if (parked_readers_.load(std::memory_order_seq_cst) != 0) {
      os::wake(word_, INT32_MAX, readers);
    }
  }

  void reset_after_fork() noexcept TS_NO_ANALYSIS {
    word_.store(0, std::memory_order_relaxed);
    parked_readers_.store(0, std::memory_order_relaxed);
  }

 private:
  static constexpr std::uint32_t one_reader = 1;
  static constexpr std::uint32_t readers_mask = 0x7fff;
  static constexpr std::uint32_t writing = 0x8000;
  static constexpr std::uint32_t one_waiting = 0x1'0000;
  static constexpr std::uint32_t waiting_mask = 0xffff'0000;
  // Kinds of waiters on word_, for os::wait and os::wake.
  static constexpr std::uint32_t readers = 1;
  static constexpr std::uint32_t writers = 2;

  void lock_shared_slow() noexcept TS_NO_ANALYSIS {
    [[maybe_unused]] const CountedWait wait{};
    for (int round = 0; round < spin_rounds; ++round) {
      if (try_lock_shared()) return;
      spin_pause();
    }
    parked_readers_.fetch_add(1, std::memory_order_seq_cst);
    while (!try_lock_shared()) {
      const std::uint32_t word = word_.load(std::memory_order_seq_cst);
      if ((word & (writing | waiting_mask)) != 0) {
        if constexpr (counting) count_event(Event::lock_parks);
        os::wait(word_, word, readers);
      }
    }
    parked_readers_.fetch_sub(1, std::memory_order_relaxed);
  }

  void lock_slow() noexcept TS_NO_ANALYSIS {
    [[maybe_unused]] const CountedWait wait{};
    std::uint32_t word = word_.fetch_add(one_waiting, std::memory_order_relaxed) + one_waiting;
    for (int round = 0;; ++round) {
      while ((word & (writing | readers_mask)) == 0) {
        if (word_.compare_exchange_weak(word, (word - one_waiting) | writing,
                                        std::memory_order_acquire, std::memory_order_relaxed)) {
          counted(true);
          return;
        }
      }
      if (round < spin_rounds) {
        spin_pause();
      } else {
        if constexpr (counting) count_event(Event::lock_parks);
        os::wait(word_, word, writers);
      }
      word = word_.load(std::memory_order_relaxed);
    }
  }

  std::atomic<std::uint32_t> word_{0};
  std::atomic<std::uint32_t> parked_readers_{0};
};

template <class Lock>
class TS_SCOPED_CAPABILITY Guard {
 public:
  explicit Guard(Lock& lock) noexcept TS_ACQUIRE(lock) : lock_{lock} { lock_.lock(); }
  ~Guard() TS_RELEASE() { lock_.unlock(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

 private:
  Lock& lock_;
};

template <class Lock>
class TS_SCOPED_CAPABILITY SharedGuard {
 public:
  explicit SharedGuard(Lock& lock) noexcept TS_ACQUIRE_SHARED(lock) : lock_{lock} {
    lock_.lock_shared();
  }
  ~SharedGuard() TS_RELEASE_GENERIC() { lock_.unlock_shared(); }
  SharedGuard(const SharedGuard&) = delete;
  SharedGuard& operator=(const SharedGuard&) = delete;

 private:
  Lock& lock_;
};

}  // namespace ts
