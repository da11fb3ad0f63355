// Findings about a pointer that is no block in use, once it is known to be none: cold, and for the
// report alone. docs/design/engine.md says which misuse is noticed when, and why no more.
#pragma once

#include "base/check.h"
#include "engine/page_map.h"

namespace ts::engine {

// Whether a large block or a place for a small one begins there.
bool begins_block(const void* p) noexcept;

// For a pointer at which no block in use begins. A sampled block (sampled_guard.h): returns true,
// and frees it if `found_by` is free. Otherwise reports the misuse and returns false. The caller
// holds no lock.
[[gnu::cold, gnu::noinline]] bool report_stray(const void* p, FoundBy found_by) noexcept;

// Reports the free of a small block that is on a list of free ones.
[[gnu::cold, gnu::noinline]] void report_double_free(const void* p) noexcept;

}  // namespace ts::engine
