// SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
//
// A repeatable lottery needs a generator that no library version changes. Every seed is a good one,
// and the state is one number.
#pragma once

#include <cstdint>

namespace ts::replay {

class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_{seed} {}

  constexpr std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // Each number below the bound, which is not 0, is equally likely: draws that would bias the
  // result are repeated.
  constexpr std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t excess = (0 - bound) % bound;  // 2^64 mod bound
    for (;;) {
      const std::uint64_t drawn = next();
      if (drawn >= excess) return drawn % bound;
    }
  }

 private:
  std::uint64_t state_;
};

}  // namespace ts::replay
