// How the caller's registers are found from those of a frame: one row of the table that .eh_frame
// describes, as far as the unwinder needs it.
#pragma once

#include <cstdint>

#include "unwind/frame_registers.h"

namespace ts::os {

struct FrameRow {
  enum class Kind : std::uint8_t {
    unknown = 1,  // no table, or none that we can read
    usual,        // the frame's address (CFA) is a register plus an offset
    realigned,    // the CFA is in memory, at the frame pointer plus an offset
    signal,       // the frame that the kernel pushed for a handler
    outermost,
  };
  // The register that the CFA is computed from.
  enum class Base : std::uint8_t { stack_pointer, frame_pointer, base_register };

  // Offsets of saved registers; unchanged ones are still in their register.
  static constexpr std::int32_t unchanged = 0;
  static constexpr std::int32_t lost = INT32_MIN;

  Kind kind = Kind::unknown;
  Base base = Base::stack_pointer;
  std::int32_t cfa_offset = 0;
  // Relative to the CFA. In a realigned frame, the frame pointer points to the caller's, and the
  // offset of the base register is relative to it.
  std::int32_t saved[saved_registers] = {};

  bool operator==(const FrameRow&) const = default;
};
static_assert(sizeof(FrameRow) == 20);

// A row packed into one word, never 0; 0 if it does not fit.
std::uint64_t pack(const FrameRow& row) noexcept;

namespace packed_row {

// From the lowest bit up: the kind and the base, then offsets from the CFA in words. The most
// negative number means a lost register.
inline constexpr unsigned kind_bits = 3;
inline constexpr unsigned base_bits = 2;
inline constexpr unsigned cfa_bits = 20;
inline constexpr unsigned saved_bits[saved_registers] = {14, 14, 11};
static_assert(kind_bits + base_bits + cfa_bits + saved_bits[0] + saved_bits[1] + saved_bits[2] ==
              64);

// A signed bit field of a word, converted from words to bytes.
inline std::int32_t words_at(std::uint64_t word, unsigned shift, unsigned bits) noexcept {
  const auto top = static_cast<std::int64_t>(word << (64 - shift - bits));
  return static_cast<std::int32_t>(top >> (64 - bits)) * 8;
}

}  // namespace packed_row

[[gnu::always_inline]] inline FrameRow unpack(std::uint64_t word) noexcept {
  using namespace packed_row;
  FrameRow row;
  row.kind = static_cast<FrameRow::Kind>(word & ((1U << kind_bits) - 1));
  row.base = static_cast<FrameRow::Base>(word >> kind_bits & ((1U << base_bits) - 1));
  unsigned shift = kind_bits + base_bits;
  row.cfa_offset = words_at(word, shift, cfa_bits);
  shift += cfa_bits;
#pragma GCC unroll 3
  for (unsigned i = 0; i < saved_registers; ++i) {
    const std::int32_t offset = words_at(word, shift, saved_bits[i]);
    row.saved[i] = offset == -(8 << (saved_bits[i] - 1)) ? FrameRow::lost : offset;
    shift += saved_bits[i];
  }
  return row;
}

}  // namespace ts::os
