// How a run ends: by itself, by its time limit, or by a signal to the launcher.
//
// Why it exists: every tool that runs a program must end the whole of its process tree, in the same
// order and with the same patience. What it refuses to do: wait, or reap. Its owner waits until
// deadline_ns() and tells it what happened; and no wait goes on without a bound once the root has
// ended or its time is up, for what does not go is killed.
#pragma once

#include <signal.h>

#include "common/system.h"
#include "launch/process_tree.h"

namespace ts {

// Blocks the signals that wait_for_signal waits for: SIGCHLD, and those that ask us to end. Returns
// the mask from before, which the child gets back. A tracer wants SIGCHLD for stops, too.
enum class Notice { ends, ends_and_stops };
sigset_t block_awaited_signals(Notice notice);

// Waits until one of them arrives, or until a moment of now_ns(); 0 if none has come.
int wait_for_signal(Nanoseconds until_ns);

inline constexpr Nanoseconds never_ns = INT64_MAX;

class TreeEnd {
 public:
  // timeout_ns 0: no limit.
  TreeEnd(Nanoseconds timeout_ns, Nanoseconds start_ns);

  Nanoseconds deadline_ns() const { return deadline_ns_; }

  void note_root_end(int wait_status);
  void note_other_end(int wait_status);  // of a process, not of a thread
  void pass_deadline_if_due();
  void interrupt();  // a signal has asked us to end

  // True once even SIGKILL has not ended everything; says so on standard error.
  bool gives_up() const;

  ProcessTree& tree() { return tree_; }
  bool root_ended() const { return root_ended_; }  // false if even SIGKILL could not end it in time
  int wait_status() const { return wait_status_; }  // as waitpid gives it
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

  void terminate();
  void kill_all();

  ProcessTree tree_;
  Phase phase_ = Phase::running;
  Nanoseconds deadline_ns_;
  Nanoseconds give_up_ns_ = never_ns;
  bool root_ended_ = false;
  int wait_status_ = 0;
  bool timed_out_ = false;
  bool interrupted_ = false;
  bool is_counting_left_behind_ = false;
  std::int64_t left_behind_ = 0;
};

}  // namespace ts
