// Packs a row into one word.
#include "unwind/frame_row.h"

namespace ts::os {
namespace {

// Appends a number of words to the bits; false if it does not fit.
bool append(std::uint64_t& word, unsigned& shift, std::int32_t bytes, unsigned bits) noexcept {
  const std::int32_t words = bytes / 8;
  const std::int32_t most = (1 << (bits - 1)) - 1;
  if (bytes % 8 != 0 || words > most || words < -most) return false;
  const auto low = static_cast<std::uint64_t>(words) & ((std::uint64_t{1} << bits) - 1);
  word |= low << shift;
  shift += bits;
  return true;
}

}  // namespace

std::uint64_t pack(const FrameRow& row) noexcept {
  using namespace packed_row;
  auto word = static_cast<std::uint64_t>(row.kind) | static_cast<std::uint64_t>(row.base)
                                                         << kind_bits;
  unsigned shift = kind_bits + base_bits;
  if (!append(word, shift, row.cfa_offset, cfa_bits)) return 0;
  for (unsigned i = 0; i < saved_registers; ++i) {
    const std::int32_t saved = row.saved[i];
    if (saved == FrameRow::lost) {
      word |= std::uint64_t{1} << (shift + saved_bits[i] - 1);
      shift += saved_bits[i];
    } else if (!append(word, shift, saved, saved_bits[i])) {
      return 0;
    }
  }
  return word;
}

}  // namespace ts::os
