// Where slabs and their guards lie in a region. Pure arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "secure/size_classes.h"

namespace ts::secure {

// The first slabs of a region have a guard each. Later ones share a guard per group, and the group
// is one mapping: Linux allows a process about 65,000 mappings, too few to guard every slab of a
// gigabyte of small blocks.
inline constexpr std::uint32_t guarded_slabs = 256;

constexpr std::size_t guarded_bytes(const SizeClass& c) noexcept {
  return std::size_t{guarded_slabs} * c.pitch_bytes;
}
constexpr std::size_t group_bytes(const SizeClass& c) noexcept {
  const std::size_t guard = c.pitch_bytes - c.slab_bytes;
  return std::size_t{group_slabs} * c.slab_bytes + guard;
}

// Offset of a slab in its region.
constexpr std::size_t offset_of(const SizeClass& c, std::uint32_t slab) noexcept {
  if (slab < guarded_slabs) return std::size_t{slab} * c.pitch_bytes;
  const std::uint32_t behind = slab - guarded_slabs;
  return guarded_bytes(c) + behind / group_slabs * group_bytes(c) +
         std::size_t{behind % group_slabs} * c.slab_bytes;
}

// The slab at an offset, or the last one before it, and the offset within that slab.
struct InSlab {
  std::size_t slab;
  std::size_t offset;
};
constexpr InSlab slab_at(const SizeClass& c, std::size_t offset) noexcept {
  if (offset < guarded_bytes(c)) {
    const std::size_t slab = quotient(offset / min_page_bytes, c.by_pitch);
    return {slab, offset - slab * c.pitch_bytes};
  }
  offset -= guarded_bytes(c);
  const std::size_t group = quotient(offset / min_page_bytes, c.by_group);
  const std::size_t in_group = offset - group * group_bytes(c);
  std::size_t slab = quotient(in_group / min_page_bytes, c.by_slab);
  if (slab == group_slabs) --slab;  // the group's guard
  return {guarded_slabs + group * group_slabs + slab, in_group - slab * c.slab_bytes};
}

constexpr bool has_sound_layout(const SizeClass& c) noexcept {
  for (std::uint32_t slab = guarded_slabs - 2; slab < guarded_slabs + 2 * group_slabs; ++slab) {
    const std::size_t begin = offset_of(c, slab);
    const InSlab first = slab_at(c, begin);
    const InSlab last = slab_at(c, begin + c.slab_bytes - 1);
    if (first.slab != slab || first.offset != 0 || last.slab != slab) return false;
    if (begin + c.slab_bytes > offset_of(c, slab + 1)) return false;
    if (offset_of(c, slab) > std::size_t{slab} * c.pitch_bytes) return false;
  }
  return true;
}
static_assert([] {
  for (const auto& classes : all_size_classes) {
    for (const SizeClass& c : classes) {
      if (!has_sound_layout(c)) return false;
    }
  }
  return true;
}());

}  // namespace ts::secure
