// Two functions of the exponential distribution, without the C library's math functions. Both are
// accurate to a relative error of about 1e-14 (tests/unit/base).
#pragma once

#include <cstdint>

#include "base/bits.h"

namespace ts {

// -ln(u) for a u that is uniform in (0, 1], made from 64 random bits: the distance to the next
// event of a Poisson process of rate 1.
inline double exponential_of(std::uint64_t random) noexcept {
  // u = number * 2^-53, and number = mantissa * 2^exponent, with the mantissa in [1, 2)
  const std::uint64_t number = (random >> 11) + 1;
  const int exponent = 63 - __builtin_clzll(number);
  double mantissa = static_cast<double>(number) / static_cast<double>(std::uint64_t{1} << exponent);
  double twos = 53 - exponent;
  constexpr double root_of_two = 1.4142135623730951;
  if (mantissa > root_of_two) {
    mantissa /= 2;
    twos -= 1;
  }
  // ln(m) = 2 artanh((m - 1) / (m + 1)), as a series: |s| is at most 0.172
  const double s = (mantissa - 1) / (mantissa + 1);
  const double square = s * s;
  double sum = 0;
  for (int odd = 19; odd >= 1; odd -= 2) sum = sum * square + 1.0 / odd;
  constexpr double ln_2 = 0.69314718055994530942;
  const double distance = twos * ln_2 - 2 * s * sum;
  return distance > 0 ? distance : 0;
}

// 1 - exp(-x) for x >= 0: the probability that such a process has an event within x.
inline double probability_within(double x) noexcept {
  if (!(x < 40)) return 1;
  int doublings = 0;
  for (; x > 0.125; x /= 2) ++doublings;
  double sum = 0;  // 1 - exp(-x) = x (1 - x/2 (1 - x/3 (1 - ...)))
  for (int n = 12; n >= 1; --n) sum = (1 - sum) * x / n;
  for (; doublings != 0; --doublings) sum *= 2 - sum;
  return sum;
}

}  // namespace ts
