// How a run ends: by itself, by its time limit, or by a signal to the launcher.
//
// Why it exists: every tool that runs a program must end the whole of its process tree, in the same
// order and with the same patience. What it refuses to do: wait, or reap. Its owner waits until
// its deadline and tells it what happened; and no wait goes on without a bound once the root has
// ended or its time is up, for what does not go is killed.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstddef>
#include <span>

#include "common/system.h"

namespace ts {

// The program and all that it started, as far as it lives: also what has left its process group,
// since we are a child subreaper, and a process whose parent has ended becomes our own child. No
// consistent picture: the processes run while they are listed, so a listing may miss one that is
// being born; to reach every process, a caller repeats the listing until there is none.
class ProcessTree {
 public:
  // Ends the program when the kernel does not offer /proc/PID/task/TID/children
  // (CONFIG_PROC_CHILDREN).
  static void require_kernel_support();

  // Lists the descendants of this process, parents before children; ended ones that have not been
  // waited for are among them.
  void refresh();

  std::span<const pid_t> processes() const { return {processes_, count_}; }

  void signal_all(int signal) const;

 private:
  void append_children(const char* task_directory);

  static constexpr std::size_t max_processes =
      4096;  // beyond, sums are too low; ending them all takes more rounds
  std::size_t count_ = 0;
  pid_t processes_[max_processes];
};

// Blocks the signals that TreeEnd::wait waits for: SIGCHLD, and those that ask us to end. Returns
// the mask from before, which the child gets back.
sigset_t block_awaited_signals();

inline constexpr Nanoseconds never_ns = INT64_MAX;

class TreeEnd {
 public:
  // timeout_ns 0: no limit.
  TreeEnd(Nanoseconds timeout_ns, Nanoseconds start_ns);

  void note_end(bool is_root, int wait_status);  // of a process, not of a thread
  void pass_deadline_if_due();

  // Until a moment of now_ns() or the deadline, or a signal; one that asks us to end is obeyed.
  void wait(Nanoseconds until_ns);

  // True once even SIGKILL has not ended everything; says so on standard error.
  bool gives_up() const;

  ProcessTree& tree() { return tree_; }
  bool root_ended() const { return root_ended_; }  // false if even SIGKILL could not end it in time
  int wait_status() const { return wait_status_; }  // as waitpid gives it
  Nanoseconds wall_ns() const;                      // from the start to the root's end
  bool timed_out() const { return timed_out_; }
  bool interrupted() const { return interrupted_; }
  // Processes that outlived the root and had to be killed.
  std::int64_t left_behind() const { return left_behind_; }

 private:
  enum class Phase {
    running,      // deadline: the timeout
    lingering,    // the root has ended, others have not; deadline: end of our patience
    terminating,  // SIGTERM has been sent; deadline: SIGKILL
    killing       // SIGKILL is being sent again and again; deadline: the next round
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
