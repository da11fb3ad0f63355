// The system calls by which an allocator gets and returns memory, and two C library services that
// it needs. Calls made by instruction are caught (caught_calls.h); calls by name reach functions of
// this program, which a preloaded library finds before libc's. So it tests the library as shipped.
// While armed, chosen calls fail as the kernel would make them fail; all others are passed on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::faults {

enum class Call : std::uint8_t {
  mmap,
  munmap,
  mremap,
  mprotect,
  madvise,
  brk,
  key_create,
  set_specific,
  open_or_read,  // of /proc/thread-self/pagemap
};
inline constexpr std::size_t call_kinds = 9;
const char* name_of(Call call) noexcept;

// Other properties of a run's environment.
struct World {
  const char* name;
  bool break_is_stuck;       // every request for memory fails
  bool no_placement;         // no mapping gets an address that the caller chose,
  std::size_t most_at_once;  // and none is longer than this; 0: no limit
};

// From now on, calls `first` to `first + count - 1` fail. A place is the caller, its caller, and
// that one's caller.
struct Plan {
  World world;
  std::uint32_t first;
  std::uint32_t count;
};
inline constexpr std::uint32_t never = UINT32_MAX;

inline constexpr std::size_t most_calls = 1024;
struct Record {
  std::uint32_t calls = 0;
  std::uint32_t failed = 0;
  bool has_moved_break = false;
  bool has_placed = false;                       // a mapping, at an address of its choice
  bool catches = false;                          // calls by instruction, too
  std::uint64_t places[most_calls] = {};         // of each call
  Call kinds[most_calls] = {};                   // likewise
  std::uint64_t failed_places[most_calls] = {};  // of each that failed
};

// From now on, counts and fails calls, and records them there.
void arm(const Plan& plan, Record& record) noexcept;
void disarm() noexcept;

// Moves the clock by which allocators decide. It stands still while calls are armed.
void pass_time(unsigned milliseconds) noexcept;

}  // namespace ts::faults
