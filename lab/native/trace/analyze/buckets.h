// Buckets of equal ratio: each octave (2^k, 2^(k+1)] in 2^bits equal parts.
//
// Why it exists: sizes and lifetimes span ten orders of magnitude, and a bucket must say the same
// of all of them. A bound belongs to the bucket below it, as with size classes: 16 and 9 share an
// octave, 17 does not. What it refuses to do: hold counts (histogram.h does).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace ts::trace {

// 0 has bucket 0 to itself, and so has each value up to 2^bits.
template <unsigned bits>
struct Buckets {
  static constexpr std::uint64_t parts = 1ULL << bits;
  static constexpr std::size_t count = ((64 - bits + 1) << bits) + 1;

  static constexpr std::size_t index(std::uint64_t value) {
    if (value == 0) return 0;
    const std::uint64_t below = value - 1;
    if (below < parts) return 1 + static_cast<std::size_t>(below);
    const unsigned octave = static_cast<unsigned>(std::bit_width(below)) - 1;
    const std::uint64_t part = (below >> (octave - bits)) - parts;
    return 1 + ((static_cast<std::size_t>(octave) - bits + 1) << bits) +
           static_cast<std::size_t>(part);
  }

  // The largest value in the bucket.
  static constexpr std::uint64_t upper(std::size_t index) {
    if (index <= parts) return index;
    const std::size_t next = index;  // of the values minus one, the first of the next bucket
    const std::size_t octave = (next >> bits) + bits - 1;
    const std::uint64_t part = next & (parts - 1);
    if (octave >= 64) return std::numeric_limits<std::uint64_t>::max();
    return (parts + part) << (octave - bits);
  }
};

using Octaves = Buckets<0>;
using Eighths = Buckets<3>;

}  // namespace ts::trace
