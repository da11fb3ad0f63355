// Call stacks as people read them: one line a frame, on standard error.
#pragma once

namespace ts::os {

// The return addresses of a thread's calls, innermost first (unwind.h). Within malloc, and under
// any lock of the dynamic linker but the one of dl_iterate_phdr, which no constructor is called
// under.
inline constexpr int most_frames = 24;
struct CallStack {
  void* frames[most_frames] = {};
  int depth = 0;
};
void take_call_stack(CallStack& stack) noexcept;
// One line each on standard error, as backtrace_symbols_fd() has them, without memory.
void write_call_stack(const CallStack& stack) noexcept;

}  // namespace ts::os
