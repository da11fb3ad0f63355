// How a run ends: by itself, by its time limit, or by a signal to the launcher.
//
// Every tool that runs a program must end its whole process tree, in the same order and with the
// same patience. This class neither waits nor reaps: its owner waits until its deadline and reports
// what happened. No wait is unbounded once the root has ended or its time is up, since remaining
// processes are killed.
#pragma once

#include <dirent.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <span>

#include "common/system.h"

namespace ts {

inline constexpr Nanoseconds never_ns = INT64_MAX;
inline constexpr Nanoseconds linger_ns = 1 * ns_per_second;  // for what the root left running
inline constexpr Nanoseconds terminate_grace_ns = 2 * ns_per_second;  // between SIGTERM and SIGKILL
inline constexpr Nanoseconds kill_round_ns = 10 * ns_per_ms;  // a fork may have slipped through
inline constexpr Nanoseconds kill_timeout_ns = 10 * ns_per_second;  // it is stuck in the kernel
inline constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// A signal that is ignored from the start (nohup, a shell's background job) stays ignored.
inline bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

inline sigset_t awaited_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int signal : ending_signals) {
    if (!is_ignored(signal)) sigaddset(&signals, signal);
  }
  return signals;
}

// Blocks the signals that TreeEnd::wait waits for: SIGCHLD, and those that ask us to end. Returns
// the previous mask, which the child gets back.
inline sigset_t block_awaited_signals() {
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;  // an inherited SIG_IGN would let the kernel reap our children
  plain.sa_flags = SA_NOCLDSTOP;
  sigaction(SIGCHLD, &plain, nullptr);
  const sigset_t awaited = awaited_signals();
  sigset_t original;
  sigprocmask(SIG_BLOCK, &awaited, &original);
  return original;
}

// Until one of them arrives, or until then; 0 if none came.
inline int wait_for_signal(Nanoseconds until_ns) {
  const Nanoseconds left_ns =
      until_ns == never_ns ? 0 : std::max<Nanoseconds>(until_ns - now_ns(), 0);
  const timespec timeout{.tv_sec = left_ns / ns_per_second, .tv_nsec = left_ns % ns_per_second};
  const sigset_t awaited = awaited_signals();
  return std::max(sigtimedwait(&awaited, nullptr, until_ns == never_ns ? nullptr : &timeout), 0);
}

// The program and all live processes that it started, including those that left its process group:
// we are a child subreaper, so a process whose parent has ended becomes our own child. The listing
// is not a consistent snapshot, since the processes run meanwhile: it may miss one that is being
// born. To reach every process, a caller repeats the listing until it is empty.
class ProcessTree {
 public:
  // Exits if the kernel has no /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN).
  static void require_kernel_support() {
    char path[64];
    format(path, sizeof path, "/proc/self/task/%d/children", getpid());
    if (access(path, R_OK) != 0)
      fail_internal("/proc/PID/task/TID/children, by which processes are found", errno);
  }

  // Lists the descendants of this process, parents before children, including zombies.
  void refresh() {
    count_ = 0;
    append_children("/proc/self/task");
    for (std::size_t parent = 0; parent < count_; ++parent) {
      char path[64];
      format(path, sizeof path, "/proc/%d/task", processes_[parent]);
      append_children(path);
    }
  }

  std::span<const pid_t> processes() const { return {processes_, count_}; }

  void signal_all(int signal) const {
    for (const pid_t process : processes()) kill(process, signal);
  }

 private:
  void append_children(const char* task_directory) {
    DIR* const tasks = opendir(task_directory);
    if (tasks == nullptr) return;  // it has ended since it was listed
    while (const dirent* task = readdir(tasks)) {
      if (task->d_name[0] == '.') continue;
      char path[PATH_MAX];
      format(path, sizeof path, "%s/%s/children", task_directory, task->d_name);
      PieceReader children{path};
      while (const char* child = children.next(' ')) {
        if (count_ < max_processes)
          processes_[count_++] = std::atoi(child);  // NOLINT: the kernel prints numbers
      }
    }
    closedir(tasks);
  }

  static constexpr std::size_t max_processes =
      4096;  // beyond, sums are too low, and ending them all takes more rounds
  std::size_t count_ = 0;
  pid_t processes_[max_processes];
};

class TreeEnd {
 public:
  // timeout_ns 0: no limit.
  TreeEnd(Nanoseconds timeout_ns, Nanoseconds start_ns)
      : deadline_ns_{timeout_ns == 0 ? never_ns : start_ns + timeout_ns}, start_ns_{start_ns} {}

  // A process's, not a thread's.
  void note_end(bool is_root, int wait_status) {
    const bool is_killed = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
    if (!is_root) {
      if (is_counting_left_behind_ && is_killed) ++left_behind_;
      return;
    }
    root_ended_ = true;
    root_end_ns_ = now_ns();
    wait_status_ = wait_status;
    if (phase_ != Phase::running) return;
    phase_ = Phase::lingering;
    deadline_ns_ = root_end_ns_ + linger_ns;
  }

  void pass_deadline_if_due() {
    if (now_ns() < deadline_ns_) return;
    if (phase_ == Phase::running) {
      timed_out_ = true;
      terminate();
    } else {
      kill_all();
    }
  }

  // Until a time of now_ns(), the deadline, or a signal; obeys a signal that asks us to end.
  void wait(Nanoseconds until_ns) {
    const int signal = wait_for_signal(std::min(until_ns, deadline_ns_));
    if (signal != 0 && signal != SIGCHLD) interrupt();
  }

  // True once even SIGKILL has not ended everything, which it reports on standard error.
  bool gives_up() const {
    if (now_ns() < give_up_ns_) return false;
    dprintf(STDERR_FILENO,
            "%s: some processes survived SIGKILL and are left running (uninterruptible sleep?).\n",
            tool_name());
    return true;
  }

  ProcessTree& tree() { return tree_; }
  bool root_ended() const { return root_ended_; }  // false if even SIGKILL could not end it in time
  int wait_status() const { return wait_status_; }  // from waitpid

  // From the start until the root's end.
  Nanoseconds wall_ns() const { return (root_ended_ ? root_end_ns_ : now_ns()) - start_ns_; }

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

  void interrupt() {
    interrupted_ = true;
    if (phase_ == Phase::running || phase_ == Phase::lingering) {
      terminate();
    } else {
      kill_all();  // asked for twice
    }
  }

  void terminate() {
    phase_ = Phase::terminating;
    deadline_ns_ = now_ns() + terminate_grace_ns;
    tree_.refresh();
    tree_.signal_all(SIGTERM);
    tree_.signal_all(SIGCONT);  // a stopped process would not notice
  }

  void kill_all() {
    if (phase_ != Phase::killing) {
      phase_ = Phase::killing;
      give_up_ns_ = now_ns() + kill_timeout_ns;
      is_counting_left_behind_ = root_ended_;
    }
    deadline_ns_ = now_ns() + kill_round_ns;
    tree_.refresh();
    tree_.signal_all(SIGKILL);
  }

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
