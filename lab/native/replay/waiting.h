// How the threads of a replay wait for each other: futexes, and on these gates, the turns of an
// object, and epochs.
//
// They wait thousands of times, on machines with fewer processors than threads, so none may spin
// for long. All words are private to the process.
#pragma once

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdint>

#include "replay/memory.h"
#include "replay/plan.h"

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

// --- turns: whose it is to use an object ---
//
// An object that one thread allocates may be resized and freed by others, in recorded order.
// Operations on objects of a single thread have no turns (plan.h), and do not touch the counter.
//
// How a turn is passed. The counter is one word: 31 bits of turn, and `waited_for`, which a thread
// that is about to sleep sets by compare-exchange. pass() exchanges the whole word. If a sleeper's
// mark precedes it in the word's modification order, the exchange sees the mark and wakes the
// sleeper. If the mark follows it, its compare-exchange fails, as the turn has changed. A mark is
// never lost: only shared operations store to the word, and each of them exchanges. All sleepers
// are woken; those whose turn has not come mark the word again.
//
// What the turn publishes: the exchange is a release, and the load that finds the turn an acquire.
// It reads from the exchange directly, as marking leaves the turn unchanged and, being a
// read-modify-write, continues the release sequence. So the pointer and the size, plain words, and
// the object's content are as the previous thread left them.
//
// When a slot is reused, the operations on its last object happened before those on the next one:
// they belong to the same thread, or pass turns too.

class Turn {
 public:
  bool has_come(std::uint32_t turn) const {
    return (word_.load(std::memory_order_acquire) & plan::turn_mask) == turn;
  }

  // Returns when the turn has come; checks `spins` times before going to sleep.
  void wait(std::uint32_t turn, int spins) {
    for (int i = 0; !has_come(turn); ++i) {
      if (i >= spins) return sleep(turn);
      pause();
    }
  }

  void reset() { word_.store(0, std::memory_order_relaxed); }  // in a forked child, which is alone

  // Ends `turn`. False: it was not this turn, and the plan is wrong.
  [[nodiscard]] bool pass(std::uint32_t turn) {
    // release: pairs with the acquire in has_come and sleep, in the thread with the next turn.
    // acquire: only for the check of plans in which none had to wait.
    const std::uint32_t before =
        word_.exchange((turn + 1) & plan::turn_mask, std::memory_order_acq_rel);
    if ((before & waited_for) != 0) futex_wake_all(word_);
    return (before & plan::turn_mask) == turn;
  }

 private:
  static constexpr std::uint32_t waited_for = ~plan::turn_mask;

  void sleep(std::uint32_t turn) {
    for (;;) {
      std::uint32_t seen = word_.load(std::memory_order_acquire);
      if ((seen & plan::turn_mask) == turn) return;
      // relaxed: a mark publishes nothing; see above for why it is not lost.
      if ((seen & waited_for) == 0 &&
          !word_.compare_exchange_weak(seen, seen | waited_for, std::memory_order_relaxed)) {
        continue;
      }
      futex_wait(word_, seen | waited_for);
    }
  }

  std::atomic<std::uint32_t> word_{0};
};

class Slot {
 public:
  void* pointer() const { return reinterpret_cast<void*>(std::uintptr_t{pointer_}); }
  std::uint64_t size() const { return (std::uint64_t{size_high_} << 16) | size_low_; }

  // An address has 48 bits unless a program asks for more.
  void set(void* pointer, std::uint64_t size) {
    pointer_ = reinterpret_cast<std::uintptr_t>(pointer) & ((std::uintptr_t{1} << 48) - 1);
    size_low_ = size & 0xffff;
    size_high_ = static_cast<std::uint32_t>(size >> 16);
  }

  Turn turn;

 private:
  std::uint32_t size_high_ = 0;
  std::uint64_t pointer_ : 48 = 0;
  std::uint64_t size_low_ : 16 = 0;
};
static_assert(sizeof(Slot) == 16);

// --- epochs: how far all threads have got ---
//
// A producer that gets far ahead of its consumer makes a heap that the recorded program never had.
// So no thread enters an epoch before all threads have left those that are further back than the
// plan's window. A thread checks one word per epoch, and can nearly always continue. It leaves an
// epoch after its last operation there.

class Epochs {
 public:
  // The table has one more entry at its end.
  Epochs(const plan::Epoch* epochs, std::size_t count)
      : epochs_{epochs}, count_{count}, inside_{count, Backing::shared} {
    // relaxed: other threads see this object because they are started afterwards, which is a
    // release.
    for (std::size_t e = 0; e < count; ++e) {
      inside_[e].store(epochs[e].threads, std::memory_order_relaxed);
    }
  }

  // For an operation, from this epoch on.
  std::uint32_t epoch_of(std::uint32_t operation, std::uint32_t epoch) const {
    while (epochs_[epoch + 1].first <= operation) ++epoch;
    return epoch;
  }
  bool is_in(std::uint32_t operation, std::uint32_t epoch) const {
    return operation < epochs_[epoch + 1].first;
  }

  bool may_enter(std::uint32_t epoch) const {
    // acquire: pairs with advance()'s compare-exchange. Everything done in all earlier epochs is
    // seen.
    return done_.load(std::memory_order_acquire) >= epochs_[epoch].after;
  }

  void wait_to_enter(std::uint32_t epoch, int spins) {
    for (int i = 0; !may_enter(epoch); ++i) {
      if (i >= spins) return sleep(epochs_[epoch].after);
      pause();
    }
  }

  // The caller leaves it. Calls on_done(epoch) for each epoch that this completes, in order, each
  // from one thread; others may have continued by then.
  template <class OnDone>
  void leave(std::uint32_t epoch, OnDone&& on_done) {
    // The last one out of an epoch advances. If earlier epochs are not done, the thread that leaves
    // the last of those does it for this one too: each first lowers its own count and then reads
    // the other's, all sequentially consistent. So of two that leave at the same time, at least one
    // sees both at zero.
    if (inside_[epoch].fetch_sub(1, std::memory_order_seq_cst) == 1) advance(on_done);
  }

 private:
  template <class OnDone>
  void advance(OnDone&& on_done) {
    bool has_advanced = false;
    std::uint32_t done = done_.load(std::memory_order_seq_cst);
    // The load of zero reads from the last leaver's fetch_sub, or from one later in its release
    // sequence, which includes all leavers': it acquires what they have done, and the
    // compare-exchange releases it to may_enter.
    while (done < count_ && inside_[done].load(std::memory_order_seq_cst) == 0) {
      if (done_.compare_exchange_strong(done, done + 1, std::memory_order_seq_cst)) {
        has_advanced = true;
        on_done(done++);
      }
    }
    // Pairs with sleep(): it raises sleepers_ and then reads done_, while here done_ is raised and
    // then sleepers_ read; so it either does not go to sleep, or is seen here.
    if (has_advanced && sleepers_.load(std::memory_order_seq_cst) != 0) futex_wake_all(done_);
  }

  void sleep(std::uint32_t after) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    for (;;) {
      const std::uint32_t done = done_.load(std::memory_order_seq_cst);
      if (done >= after) break;
      futex_wait(done_, done);
    }
    // relaxed: too high a count only costs a wake-up call that wakes none.
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

  const plan::Epoch* epochs_;
  std::size_t count_;
  Mapped<std::atomic<std::uint32_t>> inside_;  // how many have not left yet
  std::atomic<std::uint32_t> done_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace ts::replay
