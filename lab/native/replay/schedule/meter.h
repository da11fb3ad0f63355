// Meters: how many ticks a thread has had for each of its tickets, as an exact number.
//
// A meter advances by 1 / tickets, and a schedule that is to be the same in every run cannot round.
// A meter is whole ticks and a fraction whose denominator is common to all threads: the least
// common multiple of all tickets, and of 2^32 for what has no end in it. With primes for tickets
// that number is long: it may have 1,151 bits here, which is enough for any tickets up to 700, or
// for any 51 primes up to a million. The whole ticks have 64 bits, and no replay reaches so many.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::replay {

// A natural number. Products are less than 2^1151, so that the sum of any two fits into the words.
class Wide {
 public:
  constexpr Wide() = default;
  constexpr explicit Wide(std::uint32_t value) : words_{value} {}

  [[nodiscard]] bool multiply(std::uint32_t factor);  // false: too long, and the value is lost
  std::uint64_t divide(std::uint64_t divisor);        // returns the rest
  void add(const Wide& other);
  void subtract(const Wide& other);          // which is no greater
  int compare(const Wide& other) const;      // negative, 0 or positive
  double ratio_to(const Wide& whole) const;  // which is no less

 private:
  static constexpr std::size_t words = 1152 / 32;

  std::uint32_t words_[words] = {};  // the least significant first
};

// The denominator of all fractions: a number that every thread's tickets divide, and 2^32, too.
class Denominator {
 public:
  Denominator();

  // False: the common multiple is too long, and nothing has changed. Tickets are at least 1.
  [[nodiscard]] bool include(std::uint32_t tickets);
  bool includes(std::uint32_t tickets) const;

  Wide part(std::uint32_t tickets) const;  // 1 / tickets
  const Wide& whole() const { return whole_; }

 private:
  Wide whole_;
};

struct Meter {
  std::uint64_t whole = 0;
  Wide fraction;  // less than the denominator

  void advance(const Wide& step, const Denominator& denominator);  // one whole tick at most
  int compare(const Meter& other) const;
  double value(const Denominator& denominator) const;  // rounded, to be shown
};

}  // namespace ts::replay
