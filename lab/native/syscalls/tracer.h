// Following a program and all that it starts from stop to stop.
//
// Why it exists: every stop of every thread must be answered, and answered such that the program
// behaves as if it were not traced: signals are passed on, a stopped process stays stopped, a
// process that waits for a child is told. What it refuses to do: change anything in the program,
// its memory included.
//
// The stops of one thread, with what each is answered with:
//
//   first stop (PTRACE_EVENT_STOP) -> CONT     entry of a watched call (PTRACE_EVENT_SECCOMP) -> SYSCALL
//   fork, vfork, clone, exec       -> CONT     its exit (SIGTRAP | 0x80)                      -> CONT
//   a signal to be delivered -> CONT with it   group stop (PTRACE_EVENT_STOP, SIGSTOP...)     -> LISTEN
#pragma once

#include "launch/child.h"
#include "launch/options.h"
#include "launch/tree_end.h"
#include "syscalls/counts.h"
#include "syscalls/tracees.h"

namespace ts {

class Tracer {
 public:
  Tracer(const Options& options, const ChildSetup& setup, StartedChild& child)
      : options_{options}, setup_{setup}, child_{child}, end_{options.timeout_ns, now_ns()} {}

  // From fork to the end of the last process. Returns an error number if the system does not let us
  // trace the child; then nothing has run.
  int run();

  const TreeEnd& end() const { return end_; }
  const CallCounts& counts() const { return counts_; }
  std::int64_t threads() const { return threads_; }
  std::int64_t processes() const { return processes_; }
  std::int64_t untraced() const { return untraced_; }

 private:
  // over: there is no child and no tracee left.
  enum class Stops { none, more, over };

  Stops handle_stops();
  void handle_end(pid_t thread, int status);
  void handle_stop(pid_t thread, int status);
  void handle_entry(pid_t thread);
  void handle_exit(pid_t thread);
  void handle_exec(pid_t thread);
  void note_new(pid_t thread);
  void conclude_start_once();

  const Options& options_;
  const ChildSetup& setup_;
  StartedChild& child_;
  TreeEnd end_;
  Tracees tracees_;
  CallCounts counts_;
  bool is_running_ = false;  // the child has become the command, from which on calls count
  bool is_start_concluded_ = false;
  std::int64_t threads_ = 0;
  std::int64_t processes_ = 0;
  std::int64_t untraced_ = 0;  // threads that found no room
};

}  // namespace ts
