// Walks /proc/PID/task/TID/children, and implements the phases of an end and the signals; see
// tree_end.h.
#include "launch/tree_end.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace ts {
namespace {

constexpr Nanoseconds linger_ns = 1 * ns_per_second;           // for what the root left running
constexpr Nanoseconds terminate_grace_ns = 2 * ns_per_second;  // between SIGTERM and SIGKILL
constexpr Nanoseconds kill_round_ns = 10 * ns_per_ms;          // a fork may have slipped through
constexpr Nanoseconds kill_timeout_ns = 10 * ns_per_second;    // it is stuck in the kernel
constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// A signal that is ignored from the start (nohup, a shell's background job) stays ignored.
bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

sigset_t awaited_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int signal : ending_signals) {
    if (!is_ignored(signal)) sigaddset(&signals, signal);
  }
  return signals;
}

// Until one of them arrives, or until then; 0 if none came.
int wait_for_signal(Nanoseconds until_ns) {
  const Nanoseconds left_ns =
      until_ns == never_ns ? 0 : std::max<Nanoseconds>(until_ns - now_ns(), 0);
  const timespec timeout{.tv_sec = left_ns / ns_per_second, .tv_nsec = left_ns % ns_per_second};
  const sigset_t awaited = awaited_signals();
  return std::max(sigtimedwait(&awaited, nullptr, until_ns == never_ns ? nullptr : &timeout), 0);
}

}  // namespace

void ProcessTree::require_kernel_support() {
  char path[64];
  format(path, sizeof path, "/proc/self/task/%d/children", getpid());
  if (access(path, R_OK) != 0)
    fail_internal("/proc/PID/task/TID/children, by which processes are found", errno);
}

void ProcessTree::append_children(const char* task_directory) {
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

void ProcessTree::refresh() {
  count_ = 0;
  append_children("/proc/self/task");
  for (std::size_t parent = 0; parent < count_; ++parent) {
    char path[64];
    format(path, sizeof path, "/proc/%d/task", processes_[parent]);
    append_children(path);
  }
}

void ProcessTree::signal_all(int signal) const {
  for (const pid_t process : processes()) kill(process, signal);
}

sigset_t block_awaited_signals() {
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;  // an inherited SIG_IGN would let the kernel reap our children
  plain.sa_flags = SA_NOCLDSTOP;
  sigaction(SIGCHLD, &plain, nullptr);
  const sigset_t awaited = awaited_signals();
  sigset_t original;
  sigprocmask(SIG_BLOCK, &awaited, &original);
  return original;
}

TreeEnd::TreeEnd(Nanoseconds timeout_ns, Nanoseconds start_ns)
    : deadline_ns_{timeout_ns == 0 ? never_ns : start_ns + timeout_ns}, start_ns_{start_ns} {}

void TreeEnd::note_end(bool is_root, int wait_status) {
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

Nanoseconds TreeEnd::wall_ns() const { return (root_ended_ ? root_end_ns_ : now_ns()) - start_ns_; }

void TreeEnd::wait(Nanoseconds until_ns) {
  const int signal = wait_for_signal(std::min(until_ns, deadline_ns_));
  if (signal != 0 && signal != SIGCHLD) interrupt();
}

void TreeEnd::terminate() {
  phase_ = Phase::terminating;
  deadline_ns_ = now_ns() + terminate_grace_ns;
  tree_.refresh();
  tree_.signal_all(SIGTERM);
  tree_.signal_all(SIGCONT);  // a stopped process would not notice
}

void TreeEnd::kill_all() {
  if (phase_ != Phase::killing) {
    phase_ = Phase::killing;
    give_up_ns_ = now_ns() + kill_timeout_ns;
    is_counting_left_behind_ = root_ended_;
  }
  deadline_ns_ = now_ns() + kill_round_ns;
  tree_.refresh();
  tree_.signal_all(SIGKILL);
}

void TreeEnd::pass_deadline_if_due() {
  if (now_ns() < deadline_ns_) return;
  if (phase_ == Phase::running) {
    timed_out_ = true;
    terminate();
  } else {
    kill_all();
  }
}

void TreeEnd::interrupt() {
  interrupted_ = true;
  if (phase_ == Phase::running || phase_ == Phase::lingering) {
    terminate();
  } else {
    kill_all();  // asked for twice
  }
}

bool TreeEnd::gives_up() const {
  if (now_ns() < give_up_ns_) return false;
  dprintf(STDERR_FILENO,
          "%s: some processes survived SIGKILL and are left running (uninterruptible sleep?).\n",
          tool_name());
  return true;
}

}  // namespace ts
