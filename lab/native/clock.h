// The processor's counter, if it runs at one constant speed, or else the system's clock; as
// nanoseconds.
//
// clock_gettime takes as long as a good malloc, and the counter a third of that. Its speed is not
// documented, so it is measured against the system's clock.
#pragma once

#include <cstdint>
#include <ctime>

#include "common/system.h"

namespace ts {

class Clock {
 public:
  Clock() : has_counter_{has_invariant_counter()}, first_{read_both()}, latest_{first_} {
    constexpr timespec short_pause{.tv_sec = 0, .tv_nsec = ns_per_ms};
    nanosleep(&short_pause, nullptr);
    compare();
  }

  bool has_counter() const { return has_counter_; }

  // What follows does not begin before; what precedes has ended.
  std::uint64_t read() const {
#ifdef __x86_64__
    if (has_counter_) {
      __builtin_ia32_lfence();
      const std::uint64_t time = __builtin_ia32_rdtsc();
      __builtin_ia32_lfence();
      return time;
    }
#endif
    return unsigned_now_ns();
  }

  // Compares the clocks again: the longer ago the first time was, the better is the speed known.
  void compare() {
    latest_ = read_both();
    if (latest_.time <= first_.time || !has_counter_) return;
    ns_per_unit_ = static_cast<double>(latest_.ns - first_.ns) /
                   static_cast<double>(latest_.time - first_.time);
  }

  double duration_ns(std::uint64_t units) const {
    return static_cast<double>(units) * ns_per_unit_;
  }

  // Since the clock was made; 0 for earlier times.
  std::uint64_t to_ns(std::uint64_t time) const {
    const auto since_latest = static_cast<double>(static_cast<std::int64_t>(time - latest_.time));
    const auto ns = static_cast<std::int64_t>(latest_.ns - first_.ns) +
                    static_cast<std::int64_t>(since_latest * ns_per_unit_);
    return ns < 0 ? 0 : static_cast<std::uint64_t>(ns);
  }

 private:
  struct Pair {
    std::uint64_t time;
    std::uint64_t ns;
  };

  // Several times, since we may be interrupted between the two readings: the closest pair counts.
  Pair read_both() const {
    Pair best{};
    std::uint64_t minimum = UINT64_MAX;
    for (int i = 0; i < 5; ++i) {
      const std::uint64_t before = read();
      const std::uint64_t ns = unsigned_now_ns();
      const std::uint64_t width = read() - before;
      if (width >= minimum) continue;
      minimum = width;
      best = {.time = before + width / 2, .ns = ns};
    }
    return best;
  }

  bool has_counter_;
  Pair first_;
  Pair latest_;
  double ns_per_unit_ = 1;
};

}  // namespace ts
