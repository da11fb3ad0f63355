// A slot: where the pointer of a live object is kept, and whose turn it is.
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
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "replay/futex.h"
#include "replay/plan.h"

namespace ts::replay {

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

}  // namespace ts::replay
