// Call stacks for people: one line per frame, on standard error.
#pragma once

namespace ts::os {

// The return addresses of a thread's calls, innermost first (unwind.h). May be taken within malloc,
// and under any lock of the dynamic linker except that of dl_iterate_phdr, under which no
// constructor is called.
inline constexpr int most_frames = 24;
struct CallStack {
  void* frames[most_frames] = {};
  int depth = 0;
};
void take_call_stack(CallStack& stack) noexcept;
// Writes one line per frame to standard error, like backtrace_symbols_fd(), without allocating.
void write_call_stack(const CallStack& stack) noexcept;

}  // namespace ts::os
