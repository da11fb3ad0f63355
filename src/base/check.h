// Assertions by debug level, and the function that gives up. Reports do not use stdio, since the
// allocator itself may be broken.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"

namespace ts {

// Writes "tsmalloc: <message>", and the address if `where` is not null, to standard error and
// aborts. Defined in os/.
[[noreturn, gnu::cold]] void fatal(const char* message, const void* where = nullptr) noexcept;

// For misuse by the program that the heap does not survive. Checked in every build.
inline void require(bool holds, const char* message, const void* where) noexcept {
  if (!holds) [[unlikely]]
    fatal(message, where);
}

// The message for a double free and for a pointer that the heap never returned.
inline constexpr const char* not_in_use = "free of a block that is not in use";

// Kinds of misuse of memory by the program.
enum class Misuse : std::uint8_t {
  double_free,
  foreign_pointer,  // not in our memory, perhaps another allocator's
  no_pointer,       // of no allocator: stack, variable, misaligned or unmapped
  no_beginning,     // in our memory, but not the start of a block
  damaged_list,     // of free blocks: one was written to, or freed twice
  wrong_size,       // a sized free names a different size
};
inline constexpr std::size_t misuse_kinds = 6;

// The call that found the misuse.
enum class FoundBy : std::uint8_t {
  free,
  realloc,
  usable_size,
  sized_free,
  a_later_call,  // of any kind, not itself at fault
  exit,          // process exit
};

// For heaps that survive misuse: reports the first of each kind, and returns if the program is to
// keep running (TSMALLOC_ON_MISUSE); the heap then leaves the memory alone. `block_bytes` is 0 if
// the size class is unknown. The caller holds no lock and its heap is consistent, since a report
// may allocate, except when a later call found the misuse. Defined in unwind/misuse.cpp.
[[gnu::cold]] void report_misuse(Misuse kind, FoundBy found_by, const void* where,
                                 std::size_t block_bytes = 0) noexcept;

// An invariant of our own: checked from debug level `level` on, and free below it.
template <int level = 1>
inline void check(bool holds, const char* message, const void* where = nullptr) noexcept {
  if constexpr (debug_level >= level) require(holds, message, where);
}

}  // namespace ts
