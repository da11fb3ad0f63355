// The size classes of small blocks and the layout of their slabs. A slot is a block followed by its
// canary; slot sizes are multiples of 16 bytes up to 128, then four per octave up to 128 KiB. Class
// 0 is for blocks of zero bytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/heap_like.h"
#include "base/platform.h"

namespace ts::secure {

// OS pages have this length or a power of two times it; there is one table of classes per length.
inline constexpr std::size_t min_page_bytes = 4096;
inline constexpr unsigned page_lengths = std::bit_width(max_os_page_bytes / min_page_bytes);
inline constexpr std::size_t canary_bytes = 8;

inline constexpr unsigned linear_classes = 8;
inline constexpr unsigned classes_per_octave = 4;
inline constexpr std::size_t max_linear_bytes = linear_classes * min_alignment;
inline constexpr std::size_t max_slot_bytes = std::size_t{128} << 10;
inline constexpr unsigned octaves = std::bit_width(max_slot_bytes / max_linear_bytes) - 1;
inline constexpr unsigned class_count = 1 + linear_classes + octaves * classes_per_octave;
inline constexpr unsigned no_class = class_count;
inline constexpr std::size_t max_small_bytes = max_slot_bytes - canary_bytes;

inline constexpr unsigned max_slab_slots = 512;
inline constexpr unsigned max_waiting = 256;

// For long slots the table records the requested size, and the tail begins right after it (tail.h):
// an end word at the end of the slot would touch a page that the program never uses.
inline constexpr std::size_t min_long_slot_bytes = std::size_t{16} << 10;
inline constexpr unsigned max_long_slots = max_slot_bytes / min_long_slot_bytes;

// Division by a constant of the class, by multiplication (Granlund and Montgomery, 1994): exact for
// dividends below 2^23 and divisors up to 2^16.
constexpr unsigned inverse_shift = 40;
constexpr std::uint64_t inverse_of(std::size_t divisor) noexcept {
  return ((std::uint64_t{1} << inverse_shift) + divisor - 1) / divisor;
}
constexpr std::size_t quotient(std::size_t dividend, std::uint64_t inverse) noexcept {
  return dividend * inverse >> inverse_shift;
}

// Later slabs of a region share a guard per group (slab_layout.h).
inline constexpr std::uint32_t group_slabs = 16;

// Invariants, checked at compile time and in tests/unit/secure_test.cpp: slots * slot_bytes <=
// slab_bytes; there are between 1 and max_slab_slots slots, and their length is a multiple of
// min_alignment.
struct SizeClass {
  std::uint32_t slot_bytes;
  std::uint32_t block_bytes;  // usable by the program
  std::uint32_t slots;        // per slab
  std::uint32_t slab_bytes;   // whole OS pages
  std::uint32_t pitch_bytes;  // slab plus guard
  std::uint32_t waiting;      // slots in each part of the quarantine
  std::uint64_t by_slot;      // inverses, of lengths in units of min_alignment,
  std::uint64_t by_slab;      // and of min_page_bytes
  std::uint64_t by_pitch;
  std::uint64_t by_group;

  constexpr bool is_long() const noexcept { return slot_bytes >= min_long_slot_bytes; }
};

constexpr std::size_t slot_bytes_of(unsigned size_class) noexcept {
  if (size_class <= linear_classes) return (size_class == 0 ? 1 : size_class) * min_alignment;
  const unsigned step = size_class - linear_classes - 1;
  return (classes_per_octave + 1 + step % classes_per_octave)
         << (std::bit_width(max_linear_bytes / classes_per_octave) - 1 + step / classes_per_octave);
}

// Long enough that a slab has several slots to choose from, short enough that one slot in use pins
// little memory. Small slots have shorter slabs, so that their pages fill up sooner.
constexpr std::size_t wanted_slab_bytes(std::size_t slot_bytes) noexcept {
  return slot_bytes <= 512    ? std::size_t{16} << 10
         : slot_bytes <= 2048 ? std::size_t{32} << 10
         : slot_bytes < 16384 ? std::size_t{64} << 10
                              : max_slot_bytes;
}

// How much freed memory of a class may wait in each part of the quarantine.
inline constexpr std::size_t waiting_bytes = std::size_t{32} << 10;

constexpr SizeClass make_class(unsigned size_class, std::size_t page_bytes) noexcept {
  const auto number = [](std::size_t n) { return static_cast<std::uint32_t>(n); };
  const auto clamp = [](std::size_t n, std::size_t most) {
    return n == 0 ? 1 : n < most ? n : most;
  };
  const std::size_t slot = slot_bytes_of(size_class);
  const std::size_t wanted = std::max(wanted_slab_bytes(slot), page_bytes);
  const std::size_t slots = clamp(wanted / slot, max_slab_slots);
  const std::size_t slab = align_up(slots * slot, page_bytes);
  const std::size_t pitch = slab + page_bytes;
  return {number(slot),
          number(size_class == 0 ? 0 : slot - canary_bytes),
          number(slots),
          number(slab),
          number(pitch),
          number(clamp(waiting_bytes / slot, max_waiting)),
          inverse_of(slot / min_alignment),
          inverse_of(slab / min_page_bytes),
          inverse_of(pitch / min_page_bytes),
          inverse_of((group_slabs * slab + page_bytes) / min_page_bytes)};
}

// By OS page length, then by class.
inline constexpr auto all_size_classes = [] {
  std::array<std::array<SizeClass, class_count>, page_lengths> all{};
  for (unsigned length = 0; length < page_lengths; ++length) {
    for (unsigned i = 0; i < class_count; ++i)
      all[length][i] = make_class(i, min_page_bytes << length);
  }
  return all;
}();

// The class of a request; no_class if it is too large.
constexpr unsigned class_for(std::size_t bytes) noexcept {
  if (bytes == 0) return 0;
  if (bytes > max_small_bytes) return no_class;
  const std::size_t slot = bytes + canary_bytes;
  if (slot <= max_linear_bytes)
    return static_cast<unsigned>((slot + min_alignment - 1) / min_alignment);
  // Octave `width` has slots of more than 2^(width - 1) and up to 2^width bytes.
  const auto width = static_cast<unsigned>(std::bit_width(slot - 1));
  const auto step = static_cast<unsigned>(((slot - 1) >> (width - 3)) - classes_per_octave);
  constexpr unsigned first_width = std::bit_width(max_linear_bytes);
  return 1 + linear_classes + (width - first_width) * classes_per_octave + step;
}

// The same with an alignment, a power of two. Slabs begin at a page boundary, so a slot whose size
// is a multiple of the alignment is aligned. An aligned block of zero bytes needs a class other
// than 0, whose blocks are too close together.
constexpr unsigned class_for(std::size_t bytes, std::size_t alignment) noexcept {
  if (alignment <= min_alignment) return class_for(bytes);
  if (alignment > min_page_bytes) return no_class;
  unsigned size_class = class_for(bytes == 0 ? 1 : bytes);
  while (size_class < class_count && slot_bytes_of(size_class) % alignment != 0) ++size_class;
  return size_class;
}

static_assert([] {
  for (const auto& classes : all_size_classes) {
    for (const SizeClass& c : classes) {
      if (c.is_long() && c.slots > max_long_slots) return false;
    }
  }
  return true;
}());
static_assert(class_count == 49 && slot_bytes_of(class_count - 1) == max_slot_bytes);
// Sizes increase, and a request gets the smallest class that fits.
static_assert([] {
  for (unsigned c = 1; c < class_count; ++c) {
    const std::size_t bytes = slot_bytes_of(c) - canary_bytes;
    if (c > 1 && class_for(slot_bytes_of(c - 1) - canary_bytes + 1) != c) return false;
    if (class_for(bytes) != c || slot_bytes_of(c) % min_alignment != 0) return false;
  }
  return class_for(1) == 1 && class_for(max_small_bytes + 1) == no_class;
}());

}  // namespace ts::secure
