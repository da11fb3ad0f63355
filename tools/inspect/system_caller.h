// Makes system calls in a stopped thread of another process, since the kernel lets only a process
// itself purge its memory. No code of the process runs but the one instruction. Afterwards the
// thread continues as if nothing had happened; a system call in which it waited restarts.
#pragma once

#include <sys/ptrace.h>
#include <sys/types.h>
#if defined(__x86_64__)
#include <sys/user.h>
#endif

#include <cstdint>

#include "inspect/stopped_threads.h"

namespace ts {

class SystemCaller {
 public:
  static bool is_possible();

  // Prepares a thread. False if none of them can make a call at the moment.
  bool begin(const Process& process, const StoppedThreads& threads);
  // Returns 0, or an error number; ESRCH if the process has ended.
  int call(long number, std::uintptr_t first, std::uintptr_t second, std::uintptr_t third);
  // Puts the thread back where it was.
  void end();

 private:
  bool choose(const Process& process, pid_t thread, bool waits_in_kernel);
  template <class IsStop>
  bool resume_to(__ptrace_request request, IsStop is_stop) const;
  bool resume_to_system_call() const;

  pid_t thread_ = 0;
  bool is_running_ = false;  // it made a call
#if defined(__x86_64__)
  user_regs_struct former_{};
#endif
  std::uint64_t former_mask_ = 0;
  std::uintptr_t instruction_ = 0;
};

// For a stopped thread whose wait the stop ended with EINTR: has the wait restart. (signal(7) lists
// the system calls that the kernel does not restart by itself.) If a handler of the program runs
// first, the call returns EINTR.
void resume_wait(pid_t thread);

}  // namespace ts
