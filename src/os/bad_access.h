// What guard pages need of the system: memory that may no longer be touched, word of whoever
// touches it nevertheless, and of who is calling.
#pragma once

#include <cstddef>

namespace ts::os {

// Takes the memory of committed pages away, for good or until they are committed again: to touch
// them is an error.
bool withdraw(void* begin, std::size_t bytes) noexcept;

// Calls `look(address)` in the handler of SIGSEGV, before what the process had there before. The
// program may replace the handler, and no call follows then.
void call_at_bad_access(void (*look)(const void* address)) noexcept;

// Where a thread is: the addresses that its calls return to, innermost first. The first time, it
// may allocate.
inline constexpr int most_frames = 24;
struct CallStack {
  void* frames[most_frames] = {};
  int depth = 0;
};
void take_call_stack(CallStack& stack) noexcept;
// One line each on standard error, without memory.
void write_call_stack(const CallStack& stack) noexcept;

}  // namespace ts::os
