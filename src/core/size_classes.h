// The sizes of small blocks: multiples of 16 up to 128, then about eight per octave up to 32 KiB,
// each as large as possible for its number of blocks per slab, so that little is wasted at the end.
// The last two are three and four pages; each of their blocks has a slab of its own. Class 0 is
// unused.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/heap_like.h"
#include "base/platform.h"

namespace ts::engine {

inline constexpr std::size_t page_bytes = std::size_t{16} << 10;
// Larger blocks have a slab to themselves.
inline constexpr std::size_t max_shared_bytes = std::size_t{32} << 10;
inline constexpr std::size_t max_small_bytes = std::size_t{64} << 10;
inline constexpr unsigned classes_per_octave = 8;
inline constexpr unsigned linear_classes = 128 / min_alignment;
// Octaves from 128 bytes to max_shared_bytes.
inline constexpr unsigned octaves = std::bit_width(max_shared_bytes) - std::bit_width(128U);
inline constexpr unsigned first_single_class = 1 + linear_classes + octaves * classes_per_octave;
inline constexpr unsigned class_count =
    first_single_class + (max_small_bytes - max_shared_bytes) / page_bytes;

// The numbers of a class.
struct alignas(32) SizeClass {
  std::uint32_t block_bytes;
  std::uint32_t first_slab_pages;  // of a heap's first slab: short, since it may be the only one
  std::uint32_t slab_pages;        // of later ones: long enough to waste little at the end
  std::uint32_t bin_blocks;        // capacity of a bin,
  std::uint32_t wide_bin_blocks;   // and in a process's first heaps (max_heaps_with_wide_bins)
  std::uint32_t carve_blocks;      // 4 KiB of them: how many are taken from fresh memory at a time
  std::uint32_t reciprocal;        // 2^32 / block_bytes, rounded up
};

// Which block of the slab contains this offset: division by a constant as a multiplication, whose
// upper half is the quotient (Granlund and Montgomery, 1994).
constexpr std::uint32_t number_in_slab(const SizeClass& size_class, std::uint64_t offset) noexcept {
  return static_cast<std::uint32_t>(offset * size_class.reciprocal >> 32);
}

// Whether a block begins at this offset: the lower half is small if there is no remainder (Lemire,
// Kaser and Kurz, Faster remainder by direct computation, 2019). size_classes_test.cpp tries all
// offsets.
constexpr bool is_multiple(std::uint32_t offset, std::uint32_t reciprocal) noexcept {
  return offset * reciprocal < reciprocal;
}

// The smallest block size that a class may have.
constexpr std::size_t least_class_bytes(unsigned size_class) noexcept {
  if (size_class <= linear_classes) return size_class * 16;
  if (size_class >= first_single_class)
    return max_shared_bytes + (size_class - first_single_class + 1) * page_bytes;
  const unsigned step = size_class - linear_classes - 1;
  return (classes_per_octave + 1 + step % classes_per_octave) << (step / classes_per_octave + 4);
}

constexpr std::uint32_t blocks_in_slab(const SizeClass& size_class, std::size_t pages) noexcept {
  return static_cast<std::uint32_t>(pages * page_bytes / size_class.block_bytes);
}

inline constexpr std::size_t max_slab_pages = 16;
inline constexpr std::size_t bin_bytes = 8192;
inline constexpr std::size_t max_bin_blocks = 128;
// In the first heaps of a process, bins hold twice as much, and several blocks of every class. (No
// more of long slabs: see max_used_to_flush.)
inline constexpr std::size_t wide_bin_bytes = 2 * bin_bytes;
inline constexpr std::size_t max_wide_bin_blocks = 2 * max_bin_blocks;
inline constexpr std::size_t several_bytes = 131072;
inline constexpr std::size_t several_blocks = 8;
inline constexpr std::uint32_t single_blocks = 12;
inline constexpr std::size_t carve_bytes = 4096;

// The shortest slab with at least `min_blocks` that wastes at most one part in `waste` at its end.
constexpr std::uint32_t shortest_slab(std::size_t block_bytes, std::size_t min_blocks,
                                      std::size_t waste) noexcept {
  for (std::size_t pages = 1;; ++pages) {
    const std::size_t bytes = pages * page_bytes;
    if (pages == max_slab_pages ||
        (bytes / block_bytes >= min_blocks && bytes % block_bytes <= bytes / waste))
      return static_cast<std::uint32_t>(pages);
  }
}

// Sizes up to 1 KiB are multiples of 16, larger ones of 128.
inline constexpr std::size_t max_fine_bytes = 1024;
inline constexpr std::size_t fine_unit = min_alignment;
inline constexpr std::size_t coarse_unit = cache_line_bytes;

constexpr SizeClass make_class(unsigned size_class) noexcept {
  if (size_class == 0) return {};
  const std::size_t least = least_class_bytes(size_class);
  const std::uint32_t pages = shortest_slab(least, least <= max_shared_bytes ? 4 : 1, 16);
  const std::size_t blocks = pages * page_bytes / least;
  const std::size_t unit = least < max_fine_bytes ? fine_unit : coarse_unit;
  const std::size_t bytes = least <= 128 ? least : pages * page_bytes / blocks / unit * unit;
  const auto clamp = [](std::size_t value, std::size_t low, std::size_t high) {
    return static_cast<std::uint32_t>(value < low ? low : value > high ? high : value);
  };
  const std::uint32_t several =
      least <= max_shared_bytes ? clamp(several_bytes / bytes, 1, several_blocks) : single_blocks;
  return {static_cast<std::uint32_t>(bytes),
          shortest_slab(bytes, 1, 4),
          pages,
          clamp(bin_bytes / bytes, 1, max_bin_blocks),
          clamp(pages == 1 ? wide_bin_bytes / bytes : 0, several, max_wide_bin_blocks),
          clamp(carve_bytes / bytes, 1, 64),
          static_cast<std::uint32_t>(((std::uint64_t{1} << 32) + bytes - 1) / bytes)};
}

inline constexpr auto size_classes = [] {
  std::array<SizeClass, class_count> all{};
  for (unsigned i = 0; i < class_count; ++i) all[i] = make_class(i);
  return all;
}();

// The classes of requests, by multiples of `unit`.
template <std::size_t unit, std::size_t max_bytes>
constexpr auto class_table() noexcept {
  std::array<std::uint8_t, max_bytes / unit + 1> table{};
  std::uint8_t size_class = 1;
  for (std::size_t i = 0; i < table.size(); ++i) {
    while (size_classes[size_class].block_bytes < i * unit) ++size_class;
    table[i] = size_class;
  }
  return table;
}
inline constexpr auto fine_classes = class_table<fine_unit, max_fine_bytes>();
inline constexpr auto coarse_classes = class_table<coarse_unit, max_small_bytes>();

// The class for a request, which must not be too large for any.
constexpr unsigned class_for(std::size_t bytes) noexcept {
  return bytes <= max_fine_bytes ? fine_classes[(bytes + fine_unit - 1) / fine_unit]
                                 : coarse_classes[(bytes + coarse_unit - 1) / coarse_unit];
}

// Of the class that has the most.
inline constexpr std::size_t max_slab_blocks = [] {
  std::size_t most = 0;
  for (const SizeClass& c : size_classes) {
    if (c.block_bytes == 0) continue;
    const std::size_t blocks = blocks_in_slab(c, c.slab_pages);
    most = blocks > most ? blocks : most;
  }
  return align_up(most, 64);
}();

static_assert([] {
  for (const SizeClass& c : size_classes) {
    if (c.block_bytes == 0) continue;
    for (std::uint32_t i = 0; i < blocks_in_slab(c, c.slab_pages); ++i) {
      const std::uint32_t offset = i * c.block_bytes;
      const auto last = offset + c.block_bytes - 1;
      if (number_in_slab(c, offset) != i || number_in_slab(c, last) != i) return false;
      if (!is_multiple(offset, c.reciprocal) || is_multiple(last, c.reciprocal)) return false;
    }
  }
  return true;
}());
static_assert(class_count <= 128, "an entry of the map has seven bits for it");
static_assert(size_classes[class_count - 1].block_bytes == max_small_bytes);
// Sizes increase, and a request gets the first that is large enough.
static_assert([] {
  for (unsigned c = 2; c < class_count; ++c) {
    const std::size_t before = size_classes[c - 1].block_bytes;
    const std::size_t bytes = size_classes[c].block_bytes;
    if (bytes < before || size_classes[class_for(bytes)].block_bytes != bytes) return false;
    if (bytes > before && class_for(before + 1) != c) return false;
  }
  return class_for(0) == 1 && class_for(16) == 1;
}());

}  // namespace ts::engine
