// Random numbers for tests that are the same on every machine for the same seed, unlike the
// standard's distributions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::test {

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_{seed} {}

  constexpr std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }

  // 0 to `limit` - 1. (The bias of the remainder is below 2^-40 for any limit of a test.)
  constexpr std::size_t below(std::size_t limit) { return next() % limit; }
  constexpr std::size_t between(std::size_t low, std::size_t high) {
    return low + below(high - low + 1);
  }
  constexpr bool one_in(std::size_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

// A seed for part `part` of a run with seed `seed`; parts get unrelated sequences.
constexpr std::uint64_t seed_of(std::uint64_t seed, std::uint64_t part) {
  return Random{seed ^ (part * 0xd1342543de82ef95ULL)}.next();
}

}  // namespace ts::test
