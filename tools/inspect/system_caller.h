// System calls that a stopped thread of another process makes: the kernel lets a process give back its
// own memory alone. No code of the process runs but the one instruction. The thread goes on as if
// nothing had been; a system call in which it waited begins again.
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
  // Whether this machine's system calls are known.
  static bool is_possible();

  // Makes a thread ready. False if none of them can make a call at the moment.
  bool begin(const Process& process, const StoppedThreads& threads);
  // 0, or the number of an error; ESRCH if the process has ended.
  int call(long number, std::uintptr_t first, std::uintptr_t second, std::uintptr_t third);
  // Puts the thread back to where it was.
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

// Of a stopped thread: if the stop ended a wait with EINTR, has the wait begin again. (signal(7) has
// the system calls for which the kernel does not do so by itself.) If a handler of the program runs
// first, it is EINTR.
void resume_wait(pid_t thread);

}  // namespace ts
