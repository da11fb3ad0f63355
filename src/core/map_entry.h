// Entries of the page map: what free() reads about a page. types.h defines the terms.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/atomic.h"
#include "core/size_classes.h"

namespace ts::engine {

// Number of the owning heap (18 bits) | keyless (1) | 0 (2) | size class (7) | 0 (3) | large (1).
// Heaps are numbered from 1; the highest bit of the number marks an arena's heap. 0 is a page at
// which no block begins. The class is placed so that its bits are the offset of its cache bin:
// free() computes none.
//
// Invariant: each page of a slab has its owner's number, its class, and the slab's keyless_bit; the
// first page of a large block in use has large_entry. Every other page has 0.
using PageMapEntry = std::uint32_t;
inline constexpr unsigned heap_shift = 14;
inline constexpr PageMapEntry heap_unit = PageMapEntry{1} << heap_shift;
inline constexpr PageMapEntry large_entry = 1;
// The slab may have free blocks without a key, so free() checks their bits (SlabUse).
inline constexpr PageMapEntry keyless_bit = PageMapEntry{1} << 13;
static_assert(heap_unit == 2 * keyless_bit);
inline constexpr std::uint32_t has_tail = std::uint32_t{1} << 31;  // of slab_begin
// Never in an entry; set in a heap's own number (HeapFront::self) while it samples. An entry XORed
// with that number is the offset of its class's sampling bin.
inline constexpr PageMapEntry sampling_bit = PageMapEntry{1} << 12;
inline constexpr PageMapEntry arena_bit = PageMapEntry{1} << 31;
inline constexpr unsigned class_shift = 4;
inline constexpr PageMapEntry class_mask = 0x7f << class_shift;
inline constexpr PageMapEntry no_owner = ~PageMapEntry{0};

constexpr unsigned class_of(PageMapEntry entry) noexcept {
  return (entry & class_mask) >> class_shift;
}
inline const SizeClass& size_class_of(PageMapEntry entry) noexcept {
  return size_classes[class_of(entry)];
}
inline bool is_of_slab(PageMapEntry entry) noexcept {
  return entry >= heap_unit && (entry & large_entry) == 0;
}
// Whether it is of a slab that no arena owns.
inline bool is_of_thread_slab(PageMapEntry entry) noexcept {
  return entry >= heap_unit && (entry & (large_entry | arena_bit)) == 0;
}

// All that free() reads of a page.
struct MapPage {
  Atomic<PageMapEntry> entry{0};
  // Slab, const: the low half of its address. Large block: see Span's invariants.
  Plain<std::uint32_t> slab_begin = 0;
};

}  // namespace ts::engine
