// What is found out about a pointer that is no block in use, once it is known to be none: cold, and
// for the report alone. Which misuse is found when, and why no more, is in docs/engine.md.
#pragma once

#include "base/check.h"
#include "engine/layout.h"

namespace ts::engine {

// Whether a large block or a place for a small one begins there.
bool begins_block(const void* p) noexcept;

// Of a pointer where no block begins, or no longer: true if it is a guarded block (guarded.h),
// which is free by now if `found_by` is that; else it is reported. The caller holds no lock.
[[gnu::cold, gnu::noinline]] bool report_stray(const void* p, FoundBy found_by) noexcept;

// Reports the free of a small block that is on a list of free ones.
[[gnu::cold, gnu::noinline]] void report_double_free(const void* p) noexcept;

}  // namespace ts::engine
