// Assertions by debug level, and the one way to give up. Reports are written without stdio, since
// the allocator itself may be broken.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/platform.h"

namespace ts {

// Writes "tsmalloc: <message>" and, if `where` is not null, the address, to standard error, then
// aborts. Defined in os/.
[[noreturn, gnu::cold]] void fatal(const char* message, const void* where = nullptr) noexcept;

// A misuse by the program that its heap does not survive: checked in every build.
inline void require(bool holds, const char* message, const void* where) noexcept {
  if (!holds) [[unlikely]]
    fatal(message, where);
}

// The message for a double free, and for a pointer that the heap never gave out.
inline constexpr const char* not_in_use = "free of a block that is not in use";

// Misuses by the program of memory that is not a block of its own.
enum class Misuse : std::uint8_t {
  double_free,
  foreign_pointer,  // not of our memory, perhaps of another allocator's
  no_pointer,       // of no allocator: of the stack, of a variable, misaligned, of no memory
  no_beginning,     // of our memory, but no block begins there
  damaged_list,     // of free blocks: one was written to, or freed twice
  wrong_size,       // a sized free names another size
};
inline constexpr std::size_t misuse_kinds = 6;

// The call in which it was found.
enum class FoundBy : std::uint8_t {
  free,
  realloc,
  usable_size,
  sized_free,
  a_later_call,  // of any kind, and innocent
  exit,          // the process is about to end
};

// For heaps that survive a misuse: reports the first of each kind, and returns if the program is to
// go on (TSMALLOC_ON_MISUSE). The heap then leaves the memory alone. `block_bytes` is 0 where no
// class is known. The caller holds no lock, and its heap is sound, since a report may allocate. The
// report of a misuse that a later call finds does not allocate. Defined in unwind/misuse.cpp.
[[gnu::cold]] void report_misuse(Misuse kind, FoundBy found_by, const void* where,
                                 std::size_t block_bytes = 0) noexcept;

// An invariant of our own: checked from debug level `level` on, and free below it.
template <int level = 1>
inline void check(bool holds, const char* message, const void* where = nullptr) noexcept {
  if constexpr (debug_level >= level) require(holds, message, where);
}

}  // namespace ts
