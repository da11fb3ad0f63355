// Time passes when an input says so, so that what a heap does by the clock is the same every time:
// the program is linked with --wrap. Only the clock that heaps read; for one file of a program.
#pragma once

#include <time.h>

#include <cstdint>

namespace ts::fuzz {

// In milliseconds, since long ago.
inline std::uint64_t clock_now = 1'000'000;

}  // namespace ts::fuzz

extern "C" {
int __real_clock_gettime(clockid_t clock, timespec* result);

int __wrap_clock_gettime(clockid_t clock, timespec* result) {
  if (clock != CLOCK_MONOTONIC_COARSE) return __real_clock_gettime(clock, result);
  result->tv_sec = static_cast<time_t>(ts::fuzz::clock_now / 1000);
  result->tv_nsec = static_cast<long>(ts::fuzz::clock_now % 1000 * 1'000'000);
  return 0;
}
}
