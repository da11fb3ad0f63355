// A clock for single calls, which take some ten nanoseconds.
//
// Why it exists: clock_gettime takes as long as a good malloc. On x86-64, the time stamp counter is
// read directly where it runs at one rate on all processors, and elsewhere the system's clock. What
// it refuses to do: pretend to be free. What reading it costs is measured and reported; it is in
// every latency.
#pragma once

#include <cstdint>

#include "common/system.h"

namespace ts::replay {

class Clock {
 public:
  // Finds out which clock there is, its rate (some milliseconds), and what reading it costs.
  void calibrate();

  // The call that follows does not begin before; what was called has ended.
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
  std::uint64_t overhead_ns() const { return overhead_ns_; }

 private:
  bool has_counter_ = false;
  double ns_per_tick_ = 1;
  std::uint64_t overhead_ns_ = 0;
};

}  // namespace ts::replay
