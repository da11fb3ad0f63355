// From the ring's clock to nanoseconds.
//
// Why it exists: the programs read the processor's counter, whose speed nobody tells; it is
// measured against the system's clock while they run. What it refuses to do: trust a counter that
// may change its speed. Then the ring's clock is the system's, and nothing is to be converted.
#pragma once

#include <cstdint>

#include "record/ring.h"

namespace ts::record {

class Clock {
 public:
  Clock();

  RingClock kind() const { return kind_; }

  // What the programs would read now.
  std::uint64_t read() const;

  // Compares the clocks once more; to be called every few milliseconds.
  void compare();

  // Since the clock was made; 0 for what was before.
  std::uint64_t to_ns(std::uint64_t time) const;

 private:
  struct Pair {
    std::uint64_t time;
    std::uint64_t ns;
  };
  Pair read_both() const;

  RingClock kind_;
  Pair first_;
  Pair latest_;
  double ns_per_unit_ = 1;
};

}  // namespace ts::record
