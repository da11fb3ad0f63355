// Reports about a pointer that is known to be no block in use: cold. docs/design/engine.md lists
// the misuse that is noticed.
#pragma once

#include "base/check.h"
#include "core/page_map.h"

namespace ts::engine {

// Whether a place for a block of a slab, which is not marked as free, begins there.
inline bool is_small_block(const void* p, const SizeClass& c) noexcept {
  return is_multiple(offset_in_slab(p, page_map.pages[page_of(p)]), c.reciprocal) && !is_marked(p);
}

// Whether a large block begins there, or a small one.
bool is_in_use(const void* p) noexcept;

// For a pointer at which no block in use begins. A sampled block (sampled_guard.h): returns true,
// and frees it if `found_by` is free. Otherwise reports the misuse and returns false. The caller
// holds no lock.
[[gnu::cold, gnu::noinline]] bool report_invalid_pointer(const void* p, FoundBy found_by) noexcept;

}  // namespace ts::engine
