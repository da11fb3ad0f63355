// Which clock, its rate and its price; see clock.h.
#include "replay/clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "replay/histogram.h"
#include "replay/pages.h"

namespace ts::replay {
namespace {

bool counts_at_one_rate() {
#if defined(__x86_64__)
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned invariant_tsc = 1U << 8;
  return __get_cpuid(0x8000'0007U, &a, &b, &c, &d) != 0 && (d & invariant_tsc) != 0;
#else
  return false;
#endif
}

}  // namespace

void Clock::calibrate() {
  has_counter_ = counts_at_one_rate();
  if (has_counter_) {
    const Nanoseconds begin_ns = now_ns();
    const std::uint64_t begin = now();
    Nanoseconds end_ns = begin_ns;
    while (end_ns - begin_ns < 20 * ns_per_ms) end_ns = now_ns();
    ns_per_tick_ = static_cast<double>(end_ns - begin_ns) / static_cast<double>(now() - begin);
  }
  const Mapped<Histogram> apart{1, Backing::private_on_demand};
  constexpr int readings = 10'000;
  for (int i = 0; i < readings; ++i) {
    const std::uint64_t begin = now();
    apart[0].add(now() - begin);
  }
  overhead_ns_ = to_ns(apart[0].quantiles().p50);
}

}  // namespace ts::replay
