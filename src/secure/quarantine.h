// Where freed things wait before they can be handed out again: each new one takes the place of a
// random one of an array, which then goes through a queue. How long something waits is thereby not
// to be foretold, and never short. A zero-initialised one is valid.
#pragma once

#include <cstdint>

#include "secure/random.h"

namespace ts::secure {

// Of numbers that are not 0; `most` in either part, of which a user chooses how many it needs.
template <unsigned most>
class Quarantine {
 public:
  // Puts a number in; the one that has waited for long enough, or 0.
  std::uint32_t exchange(std::uint32_t number, std::uint32_t length, Random& random) noexcept {
    swap(shuffled_[random.below(length)], number);
    if (number == 0) return 0;
    swap(queue_[next_], number);
    next_ = next_ + 1 == length ? 0 : next_ + 1;
    return number;
  }

 private:
  static void swap(std::uint32_t& a, std::uint32_t& b) noexcept {
    const std::uint32_t kept = a;
    a = b;
    b = kept;
  }

  std::uint32_t shuffled_[most];
  std::uint32_t queue_[most];
  std::uint32_t next_;  // the oldest of the queue
};

}  // namespace ts::secure
