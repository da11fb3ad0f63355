// Which clock, and its rate; see clock.h.
#include "replay/clock.h"

namespace ts::replay {
void Clock::calibrate() {
  has_counter_ = has_invariant_counter();
  if (!has_counter_) return;
  const Nanoseconds begin_ns = now_ns();
  const std::uint64_t begin = now();
  Nanoseconds end_ns = begin_ns;
  while (end_ns - begin_ns < 20 * ns_per_ms) end_ns = now_ns();
  ns_per_tick_ = static_cast<double>(end_ns - begin_ns) / static_cast<double>(now() - begin);
}

}  // namespace ts::replay
