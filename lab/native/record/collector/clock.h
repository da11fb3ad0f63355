// Converts the ring's clock to nanoseconds.
//
// The programs read the processor's counter, whose speed is not documented; it is measured against
// the system's clock while they run. If the ring uses the system's clock, nothing needs converting.
#pragma once

#include <cstdint>
#include <ctime>

#include "common/system.h"
#include "record/ring.h"

namespace ts::record {

class Clock {
 public:
  Clock()
      : kind_{has_invariant_counter() ? RingClock::cycles : RingClock::monotonic},
        first_{read_both()},
        latest_{first_} {
    constexpr timespec short_pause{.tv_sec = 0, .tv_nsec = ns_per_ms};
    nanosleep(&short_pause, nullptr);
    compare();
  }

  RingClock kind() const { return kind_; }

  // What the programs would read at this moment.
  std::uint64_t read() const {
#ifdef __x86_64__
    if (kind_ == RingClock::cycles) return __builtin_ia32_rdtsc();
#endif
    return unsigned_now_ns();
  }

  // Compares the clocks again; call it every few milliseconds.
  void compare() {
    latest_ = read_both();
    if (latest_.time <= first_.time || kind_ == RingClock::monotonic) return;
    ns_per_unit_ = static_cast<double>(latest_.ns - first_.ns) /
                   static_cast<double>(latest_.time - first_.time);
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

  RingClock kind_;
  Pair first_;
  Pair latest_;
  double ns_per_unit_ = 1;
};

}  // namespace ts::record
