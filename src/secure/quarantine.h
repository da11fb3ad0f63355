// The quarantine of freed memory. Each new number replaces a random element of an array, and the
// replaced one then passes through a queue, so the time a number waits is unpredictable but never
// short. A zero-initialised quarantine is valid.
#pragma once

#include <cstdint>

#include "base/fault.h"
#include "secure/random.h"

namespace ts::secure {

// Holds numbers other than 0. The user chooses one length for both parts, at most `most`, and never
// changes it.
//
// Invariants: places from the length on are empty. next_ < length. The queue is full before next_,
// and from there on either full or empty.
template <unsigned most>
class Quarantine {
 public:
  // Inserts a number; returns the one that leaves, or 0.
  std::uint32_t exchange(std::uint32_t number, std::uint32_t length, Random& random) noexcept {
    swap(shuffled_[random.below(length)], number);
    if (number == 0) return 0;
    swap(queue_[next_], number);
    next_ = next_ + 1 == length ? 0 : next_ + 1;
    return number;
  }

  template <class Visit>
  void for_each(Visit visit) const noexcept {
    for (const std::uint32_t number : shuffled_) {
      if (number != 0) visit(number);
    }
    for (const std::uint32_t number : queue_) {
      if (number != 0) visit(number);
    }
  }

  Fault find_fault(std::uint32_t length) const noexcept {
    if (next_ >= length) return {"a queue's next place is one of its places", this};
    const bool is_full = queue_[next_] != 0;
    for (std::uint32_t i = 0; i < most; ++i) {
      if (i >= length && (shuffled_[i] != 0 || queue_[i] != 0))
        return {"a quarantine is empty behind its length", this};
      if (i < length && (queue_[i] != 0) != (i < next_ || is_full))
        return {"a queue is full before its next place, and full or empty behind", this};
    }
    return {};
  }

 private:
  static void swap(std::uint32_t& a, std::uint32_t& b) noexcept {
    const std::uint32_t saved = a;
    a = b;
    b = saved;
  }

  std::uint32_t next_;  // the oldest entry of the queue
  std::uint32_t shuffled_[most];
  std::uint32_t queue_[most];
};

}  // namespace ts::secure
