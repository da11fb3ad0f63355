// Which clock, its rate and its price; see clock.h.
#include "replay/clock.h"

#include "replay/histogram.h"
#include "replay/pages.h"

namespace ts::replay {
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
