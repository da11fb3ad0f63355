// Reports about a pointer that is known to be no block in use: cold. docs/design/engine.md lists
// the misuse that is noticed.
#pragma once

#include "base/check.h"
#include "core/page_map.h"

namespace ts::engine {

// Whether the block is free, of a slab with unmarked_bit.
[[gnu::noinline]] bool is_free_without_mark(const void* p) noexcept;

// Whether a place for a block of a slab begins there that is not free. `entry` is its page's.
inline bool is_small_block(const void* p, PageMapEntry entry) noexcept {
  const SizeClass& c = size_class_of(entry);
  if (!is_multiple(offset_in_slab(p, page_map.pages[page_of(p)]), c.reciprocal) || is_marked(p))
    return false;
  return (entry & unmarked_bit) == 0 || !is_free_without_mark(p);
}

// What the free is of a block of the slab that is free already: of one that was never taken, it is
// no block's beginning.
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
