// The sizes in which small blocks come. Classes are for requests up to multiples of 16 up to 128, then
// eight to an octave up to 32 KiB. The blocks of a class are as large as that, and a little more where
// this fills the slab: what would be lost at the end is shared out. Class 0 is none.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/heap_like.h"
#include "base/platform.h"

namespace ts::engine {

inline constexpr std::size_t granule_bytes = std::size_t{16} << 10;
inline constexpr std::size_t max_small_bytes = std::size_t{32} << 10;
inline constexpr unsigned classes_per_octave = 8;
inline constexpr unsigned linear_classes = 128 / min_alignment;
// Octaves from 128 bytes to max_small_bytes.
inline constexpr unsigned octaves = std::bit_width(max_small_bytes) - std::bit_width(128U);
inline constexpr unsigned class_count = 1 + linear_classes + octaves * classes_per_octave;

// The class of a request that is not too large for any.
constexpr unsigned class_for(std::size_t bytes) noexcept {
  if (bytes <= 128) return bytes == 0 ? 1 : static_cast<unsigned>((bytes + 15) / 16);
  // The highest four bits of the last byte's offset name the class: a leading one, and three more.
  const std::size_t last = bytes - 1;
  const unsigned shift = static_cast<unsigned>(std::bit_width(last)) - 4;
  return linear_classes + 1 + (shift - 4) * classes_per_octave +
         static_cast<unsigned>((last >> shift) & (classes_per_octave - 1));
}

// What the heap knows of a class.
struct SizeClass {
  std::uint32_t block_bytes;
  std::uint32_t first_slab_granules;  // of a heap's first slab: short, since it may be the only one
  std::uint32_t slab_granules;        // of further ones: as long as wastes little at the end
  std::uint32_t bin_blocks;           // as many as a bin may hold
  std::uint32_t carve_blocks;         // as many as are linked at a time: a page of fresh memory
  std::uint32_t reciprocal;           // of block_bytes, for number_in_slab
};

// A division by a constant as a multiplication (Granlund and Montgomery, 1994).
inline constexpr unsigned reciprocal_shift = 35;

// Which block of the slab begins at this offset, or contains it.
constexpr std::uint32_t number_in_slab(const SizeClass& size_class, std::size_t offset) noexcept {
  return static_cast<std::uint32_t>(offset * size_class.reciprocal >> reciprocal_shift);
}

// The largest request that the class serves.
constexpr std::size_t class_bytes(unsigned size_class) noexcept {
  if (size_class <= linear_classes) return size_class * 16;
  const unsigned step = size_class - linear_classes - 1;
  return (classes_per_octave + 1 + step % classes_per_octave) << (step / classes_per_octave + 4);
}

constexpr std::uint32_t blocks_in_slab(const SizeClass& size_class, std::size_t granules) noexcept {
  return static_cast<std::uint32_t>(granules * granule_bytes / size_class.block_bytes);
}

inline constexpr std::size_t max_slab_granules = 16;
inline constexpr std::size_t bin_bytes = 8192;
inline constexpr std::size_t max_bin_blocks = 128;
inline constexpr std::size_t carve_bytes = 4096;

// The shortest slab with so many blocks that wastes at most one part in `waste` at its end.
constexpr std::uint32_t shortest_slab(std::size_t block_bytes, std::size_t min_blocks,
                                      std::size_t waste) noexcept {
  for (std::size_t granules = 1;; ++granules) {
    const std::size_t bytes = granules * granule_bytes;
    if (granules == max_slab_granules ||
        (bytes / block_bytes >= min_blocks && bytes % block_bytes <= bytes / waste))
      return static_cast<std::uint32_t>(granules);
  }
}

constexpr SizeClass make_class(unsigned size_class) noexcept {
  if (size_class == 0) return {};
  const std::size_t request = class_bytes(size_class);
  const std::uint32_t granules = shortest_slab(request, 4, 16);
  // Besides, blocks that do not all begin at multiples of 1 KiB meet in fewer sets of the caches.
  const std::size_t blocks = granules * granule_bytes / request;
  const std::size_t unit = request < 1024 ? min_alignment : cache_line_bytes;
  const std::size_t bytes =
      request <= 128 ? request : granules * granule_bytes / blocks / unit * unit;
  const auto clamp = [](std::size_t value, std::size_t least, std::size_t most) {
    return static_cast<std::uint32_t>(value < least ? least : value > most ? most : value);
  };
  return {static_cast<std::uint32_t>(bytes),
          shortest_slab(bytes, 1, 4),
          granules,
          clamp(bin_bytes / bytes, 1, max_bin_blocks),
          clamp(carve_bytes / bytes, 1, 64),
          static_cast<std::uint32_t>(((std::uint64_t{1} << reciprocal_shift) + bytes - 1) / bytes)};
}

inline constexpr auto size_classes = [] {
  std::array<SizeClass, class_count> all{};
  for (unsigned i = 0; i < class_count; ++i) all[i] = make_class(i);
  return all;
}();

// Requests up to here, which most are, find their class by a table (thread_heap.h).
inline constexpr std::size_t max_table_bytes = 1024;

// Of the class that has most.
inline constexpr std::size_t max_slab_blocks = [] {
  std::size_t most = 0;
  for (const SizeClass& c : size_classes) {
    if (c.block_bytes == 0) continue;
    const std::size_t blocks = blocks_in_slab(c, c.slab_granules);
    most = blocks > most ? blocks : most;
  }
  return align_up(most, 64);
}();

static_assert([] {
  for (const SizeClass& c : size_classes) {
    if (c.block_bytes == 0) continue;
    for (std::uint32_t i = 0; i < blocks_in_slab(c, c.slab_granules); ++i) {
      const std::size_t offset = std::size_t{i} * c.block_bytes;
      if (number_in_slab(c, offset) != i || number_in_slab(c, offset + c.block_bytes - 1) != i)
        return false;
    }
  }
  return true;
}());
static_assert(class_count <= 128, "an entry of the map has seven bits for it");
static_assert(class_bytes(class_count - 1) == max_small_bytes);
static_assert(class_for(max_small_bytes) == class_count - 1);
static_assert([] {
  for (unsigned c = 2; c < class_count; ++c) {
    if (class_for(class_bytes(c)) != c || class_for(class_bytes(c - 1) + 1) != c) return false;
  }
  return class_for(0) == 1 && class_for(16) == 1;
}());

}  // namespace ts::engine
