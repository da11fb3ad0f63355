// Assertions by debug level, and the one way to give up. Reports are written without stdio, since
// the allocator may be what is broken.
#pragma once

#include "base/platform.h"

namespace ts {

// Writes "tsmalloc: <what>" and, if `where` is not null, the address, to standard error, then
// aborts. Defined in os/.
[[noreturn, gnu::cold]] void fatal(const char* what, const void* where = nullptr) noexcept;

// A misuse by the program (double free, foreign pointer): checked in every build.
inline void require(bool holds, const char* what, const void* where) noexcept {
  if (!holds) [[unlikely]]
    fatal(what, where);
}

// What every heap says of a double free, and of a pointer that it never gave out.
inline constexpr const char* not_in_use = "free of a block that is not in use";

// An invariant of our own: checked from debug level `level` on, and free below it.
template <int level = 1>
inline void check(bool holds, const char* what, const void* where = nullptr) noexcept {
  if constexpr (debug_level >= level) require(holds, what, where);
}

}  // namespace ts
