// Reports of misuse: cold. What is noticed, and by which call:
//
//   a block in a cache bin is freed      its key (block_list.h)            this free
//   a block in its slab is freed         its key or its bit (FreeBits)     this free
//   the owner's block is freed twice     the bit of its batch or slab       the later free, or when
//   by other threads                     (remote_frees.h)                   the owner collects it
//   a large block is freed twice         its page's map entry               this free
//   no block begins at the pointer       map entry, is_multiple()           this free
//   a free block was written to          its key, the ends of lists        a later malloc or flush
//
// docs/misuse.md has the whole, with the features' part.
#pragma once

#include "base/check.h"
#include "core/page_map.h"

namespace ts::engine {

// Whether the block is free, of a slab with keyless_bit.
[[gnu::noinline]] bool is_free_without_key(const void* p) noexcept;

// Whether a place for a block of a slab begins there that is not free. `entry` is its page's.
inline bool is_small_block(const void* p, PageMapEntry entry) noexcept {
  const SizeClass& c = size_class_of(entry);
  if (!is_multiple(offset_in_slab(p, page_map.pages[page_of(p)]), c.reciprocal) || has_key(p))
    return false;
  return (entry & keyless_bit) == 0 || !is_free_without_key(p);
}

// Classifies a free of a block that is free already: no_beginning if the block was never handed
// out.
inline Misuse kind_of_free(const Span& slab, const BlockPlace& place) noexcept {
  return place.is_beginning && place.number < slab.carved ? Misuse::double_free
                                                          : Misuse::no_beginning;
}

// Whether a large block begins there, or a small one.
bool is_in_use(const void* p) noexcept;

// For a pointer at which no block in use begins. A sampled block (sampled_guard.h): returns true,
// and frees it if `found_by` is free. Otherwise reports the misuse and returns false. The caller
// holds no lock.
[[gnu::cold, gnu::noinline]] bool report_invalid_pointer(const void* p, FoundBy found_by) noexcept;

}  // namespace ts::engine
