// How far all threads have got: which epochs are done.
//
// A producer that gets far ahead of its consumer makes a heap that the recorded program never had.
// So no thread enters an epoch before all threads have left those that are further back than the
// plan's window. A thread checks one word per epoch, and can nearly always continue. It leaves an
// epoch after its last operation there.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "replay/futex.h"
#include "replay/pages.h"
#include "replay/plan.h"

namespace ts::replay {

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

  std::uint32_t done() const { return done_.load(std::memory_order_acquire); }

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
