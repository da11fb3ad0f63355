// Reports about a pointer that is known to be no block in use: cold. docs/design/engine.md lists
// the misuse that is noticed.
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
