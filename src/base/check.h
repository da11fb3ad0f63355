// Assertions by debug level, and the one way to give up. Reports are written without stdio, since
// the allocator may be what is broken.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"

namespace ts {

// Writes "tsmalloc: <what>" and, if `where` is not null, the address, to standard error, then
// aborts. Defined in os/.
[[noreturn, gnu::cold]] void fatal(const char* what, const void* where = nullptr) noexcept;

// A misuse by the program that its heap does not survive: checked in every build.
inline void require(bool holds, const char* what, const void* where) noexcept {
  if (!holds) [[unlikely]]
    fatal(what, where);
}

// What every heap says of a double free, and of a pointer that it never gave out.
inline constexpr const char* not_in_use = "free of a block that is not in use";

// What a program may do to memory that is not, or no longer, a block of its own.
enum class Misuse : std::uint8_t {
  double_free,
  foreign_pointer,  // not of our memory
  no_beginning,     // of our memory, but no block begins there
  damaged_list,     // of free blocks: one was written to, or freed twice
  wrong_size,       // a sized free names another size
};
inline constexpr std::size_t misuse_kinds = 5;

// In which call it was found.
enum class FoundBy : std::uint8_t {
  free,
  realloc,
  usable_size,
  sized_free,
  a_later_call,  // of any kind, and innocent
};

// For heaps that can go on after a misuse: reports it, the first of each kind, and returns if the
// program is to go on (TSMALLOC_ON_MISUSE); the heap then leaves alone what is not a block in use.
// `block_bytes` is 0 where no class is known. The caller holds no lock, and its heap is sound,
// since a report may allocate; but for misuse that a later call finds, whose report does not.
// Defined in os/misuse.cpp.
[[gnu::cold]] void report_misuse(Misuse kind, FoundBy found_by, const void* where,
                                 std::size_t block_bytes = 0) noexcept;

// An invariant of our own: checked from debug level `level` on, and free below it.
template <int level = 1>
inline void check(bool holds, const char* what, const void* where = nullptr) noexcept {
  if constexpr (debug_level >= level) require(holds, what, where);
}

}  // namespace ts
