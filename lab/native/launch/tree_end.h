// How a run ends: by itself, by its time limit, or by a signal to the launcher.
//
// Every tool that runs a program must end its whole process tree, in the same order and with the
// same patience. This class neither waits nor reaps: its owner waits until its deadline and reports
// what happened. No wait is unbounded once the root has ended or its time is up, since remaining
// processes are killed.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <span>

#include "common/system.h"

namespace ts {

// The program and all live processes that it started, including those that left its process group:
// we are a child subreaper, so a process whose parent has ended becomes our own child. The listing
// is not a consistent snapshot, since the processes run meanwhile: it may miss one that is being
// born. To reach every process, a caller repeats the listing until it is empty.
class ProcessTree {
 public:
  // Exits if the kernel has no /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN).
  static void require_kernel_support();

  // Lists the descendants of this process, parents before children, including zombies.
  void refresh();

  std::span<const pid_t> processes() const { return {processes_, count_}; }

  void signal_all(int signal) const;

 private:
  void append_children(const char* task_directory);

  static constexpr std::size_t max_processes =
      4096;  // beyond, sums are too low, and ending them all takes more rounds
  std::size_t count_ = 0;
  pid_t processes_[max_processes];
};

// Blocks the signals that TreeEnd::wait waits for: SIGCHLD, and those that ask us to end. Returns
// the previous mask, which the child gets back.
sigset_t block_awaited_signals();

inline constexpr Nanoseconds never_ns = INT64_MAX;

class TreeEnd {
 public:
  // timeout_ns 0: no limit.
  TreeEnd(Nanoseconds timeout_ns, Nanoseconds start_ns);

  void note_end(bool is_root, int wait_status);  // a process's, not a thread's
  void pass_deadline_if_due();

  // Until a time of now_ns(), the deadline, or a signal; obeys a signal that asks us to end.
  void wait(Nanoseconds until_ns);

  // True once even SIGKILL has not ended everything, which it reports on standard error.
  bool gives_up() const;

  ProcessTree& tree() { return tree_; }
  bool root_ended() const { return root_ended_; }  // false if even SIGKILL could not end it in time
  int wait_status() const { return wait_status_; }  // from waitpid
  Nanoseconds wall_ns() const;                      // from the start until the root's end
  bool timed_out() const { return timed_out_; }
  bool interrupted() const { return interrupted_; }
  // Processes that outlived the root and had to be killed.
  std::int64_t left_behind() const { return left_behind_; }

 private:
  enum class Phase {
    running,      // deadline: the timeout
    lingering,    // the root has ended, others have not; deadline: the end of our patience
    terminating,  // SIGTERM was sent; deadline: SIGKILL
    killing       // SIGKILL is sent repeatedly; deadline: the next round
  };

  void interrupt();
  void terminate();
  void kill_all();

  ProcessTree tree_;
  Phase phase_ = Phase::running;
  Nanoseconds deadline_ns_;
  Nanoseconds give_up_ns_ = never_ns;
  Nanoseconds start_ns_;
  Nanoseconds root_end_ns_ = 0;
  bool root_ended_ = false;
  int wait_status_ = 0;
  bool timed_out_ = false;
  bool interrupted_ = false;
  bool is_counting_left_behind_ = false;
  std::int64_t left_behind_ = 0;
};

}  // namespace ts
