// A clock for single calls, which take some ten nanoseconds.
//
// clock_gettime takes as long as a good malloc. On x86-64, the time stamp counter is read directly
// if it runs at one rate on all processors; otherwise the system's clock is used. Every latency
// includes the cost of reading it.
#pragma once

#include <cstdint>

#include "common/system.h"

namespace ts::replay {

class Clock {
 public:
  // Determines which clock there is, and its rate (takes some milliseconds).
  void calibrate();

  // The following call does not begin before; the previous call has ended.
  std::uint64_t now() const {
#if defined(__x86_64__)
    if (has_counter_) {
      __builtin_ia32_lfence();
      const std::uint64_t ticks = __builtin_ia32_rdtsc();
      __builtin_ia32_lfence();
      return ticks;
    }
#endif
    return static_cast<std::uint64_t>(now_ns());
  }

  std::uint64_t to_ns(std::uint64_t ticks) const {
    return static_cast<std::uint64_t>(to_exact_ns(ticks));
  }

  double to_exact_ns(std::uint64_t ticks) const {
    return static_cast<double>(ticks) * ns_per_tick_;
  }

  const char* source() const { return has_counter_ ? "tsc" : "monotonic"; }

 private:
  bool has_counter_ = false;
  double ns_per_tick_ = 1;
};

}  // namespace ts::replay
