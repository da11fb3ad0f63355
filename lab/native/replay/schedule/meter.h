// Meters: how many ticks a thread has had for each of its tickets, as an exact number.
//
// A meter advances by 1 / tickets, and is counted in fractions of a tick common to all threads: the
// least common multiple of all tickets, times 2^32 for the remainders. The multiple has up to 62
// bits, which is enough for any tickets up to 42, or for any three up to a million.
#pragma once

#include <cstdint>
#include <numeric>

namespace ts::replay {

// In fractions of a tick. A replay has fewer than 2^32 operations, and a meter has room for 2^34
// ticks.
__extension__ using Meter = unsigned __int128;

// The number of fractions in a tick.
class Denominator {
 public:
  // False: the common multiple is too large, and nothing has changed. Tickets are at least 1.
  [[nodiscard]] bool include(std::uint32_t tickets) {
    const std::uint64_t factor = tickets / std::gcd(multiple_, std::uint64_t{tickets});
    if (multiple_ > maximum / factor) return false;
    multiple_ *= factor;
    return true;
  }
  bool includes(std::uint32_t tickets) const { return tickets != 0 && multiple_ % tickets == 0; }

  Meter whole() const { return Meter{multiple_} << 32; }
  Meter part(std::uint64_t tickets) const { return whole() / tickets; }  // rounded down

  // In ticks, rounded for display.
  double value(Meter meter) const {
    return static_cast<double>(meter) / static_cast<double>(whole());
  }

 private:
  static constexpr std::uint64_t maximum = std::uint64_t{1} << 62;

  std::uint64_t multiple_ = 1;
};

}  // namespace ts::replay
