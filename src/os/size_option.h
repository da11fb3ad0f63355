// The value of an option that is a size or a time.
#pragma once

#include <cstdint>

namespace ts {

// A word, by its index; a share of memory; or bytes, or milliseconds.
struct SizeOption {
  static constexpr std::uint64_t percent_bit = std::uint64_t{1} << 63;
  static constexpr std::uint64_t bytes_bit = std::uint64_t{1} << 62;
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 48;

  std::uint64_t bits;

  bool is_word() const noexcept { return bits < bytes_bit; }
  bool is_percent() const noexcept { return bits >= percent_bit; }
  std::uint64_t number() const noexcept { return bits & (bytes_bit - 1); }
  explicit operator std::uint64_t() const noexcept { return bits; }
};

}  // namespace ts
