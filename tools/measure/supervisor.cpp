// The event loop; see supervisor.h.
#include "measure/supervisor.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>

namespace ts {
namespace {

constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
constexpr Nanoseconds linger_ns = 1 * ns_per_second;           // for what the root left running
constexpr Nanoseconds terminate_grace_ns = 2 * ns_per_second;  // between SIGTERM and SIGKILL
constexpr Nanoseconds kill_round_ns =
    10 * ns_per_ms;  // a fork may have slipped through the listing
constexpr Nanoseconds kill_patience_ns =
    10 * ns_per_second;  // a process stuck in the kernel never goes
constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

Nanoseconds to_ns(const timeval& time) {
  return time.tv_sec * ns_per_second + time.tv_usec * ns_per_us;
}

// Whoever started us with a signal ignored (nohup, a shell's background job) wants it ignored.
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

}  // namespace

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

void Usage::add(const rusage& usage) {
  user_ns += to_ns(usage.ru_utime);
  system_ns += to_ns(usage.ru_stime);
  peak_rss_bytes = std::max<std::int64_t>(peak_rss_bytes, usage.ru_maxrss * 1024);
  minor_faults += usage.ru_minflt;
  major_faults += usage.ru_majflt;
  voluntary_switches += usage.ru_nvcsw;
  involuntary_switches += usage.ru_nivcsw;
}

Supervisor::Supervisor(const Options& options, const StartedChild& child)
    : child_{child},
      sampler_{options.sample_ns, child.exec_ns},
      preload_proof_{options, child.exec_ns},
      deadline_ns_{options.timeout_ns == 0 ? never : child.exec_ns + options.timeout_ns},
      give_up_ns_{never} {}

void Supervisor::note_root_end(int wait_status) {
  outcome_.root_ended = true;
  outcome_.wait_status = wait_status;
  outcome_.wall_ns = now_ns() - child_.exec_ns;
  if (phase_ != Phase::running) return;
  phase_ = Phase::lingering;
  deadline_ns_ = now_ns() + linger_ns;
}

bool Supervisor::reap() {
  int status = 0;
  rusage usage{};
  pid_t ended = 0;
  while ((ended = wait4(-1, &status, WNOHANG, &usage)) > 0) {
    outcome_.usage.add(usage);
    if (ended == child_.pid) {
      note_root_end(status);
    } else if (is_counting_left_behind_ && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
      ++outcome_.left_behind;
    }
  }
  return ended == 0;  // otherwise ECHILD
}

void Supervisor::terminate() {
  phase_ = Phase::terminating;
  deadline_ns_ = now_ns() + terminate_grace_ns;
  tree_.refresh();
  tree_.signal_all(SIGTERM);
  tree_.signal_all(SIGCONT);  // a stopped process would not notice
}

void Supervisor::kill_all() {
  if (phase_ != Phase::killing) {
    phase_ = Phase::killing;
    give_up_ns_ = now_ns() + kill_patience_ns;
    is_counting_left_behind_ = outcome_.root_ended;
  }
  deadline_ns_ = now_ns() + kill_round_ns;
  tree_.refresh();
  tree_.signal_all(SIGKILL);
}

void Supervisor::pass_deadline() {
  if (phase_ == Phase::running) {
    outcome_.timed_out = true;
    terminate();
  } else {
    kill_all();
  }
}

void Supervisor::look_around() {
  const Nanoseconds now = now_ns();
  if (preload_proof_.due_ns() <= now && !outcome_.root_ended) preload_proof_.look(child_.pid);
  if (sampler_.due_ns() <= now) sampler_.sample(tree_, child_.pid);
}

void Supervisor::wait_for_event() {
  const Nanoseconds proof_due_ns = outcome_.root_ended ? never : preload_proof_.due_ns();
  const Nanoseconds until = std::min({deadline_ns_, proof_due_ns, sampler_.due_ns()});
  const Nanoseconds left = std::max<Nanoseconds>(until == never ? never : until - now_ns(), 0);
  const timespec timeout{.tv_sec = left / ns_per_second, .tv_nsec = left % ns_per_second};
  const sigset_t awaited = awaited_signals();
  const int signal = sigtimedwait(&awaited, nullptr, until == never ? nullptr : &timeout);
  if (signal < 0 || signal == SIGCHLD) return;
  outcome_.interrupted = true;
  if (phase_ == Phase::running || phase_ == Phase::lingering) {
    terminate();
  } else {
    kill_all();  // asked twice
  }
}

void Supervisor::run() {
  while (reap()) {
    if (now_ns() >= give_up_ns_) {
      dprintf(STDERR_FILENO,
              "measure: processes that SIGKILL does not end are left running (uninterruptible "
              "sleep?).\n");
      break;
    }
    if (now_ns() >= deadline_ns_) pass_deadline();
    look_around();
    wait_for_event();
  }
  if (!outcome_.root_ended) outcome_.wall_ns = now_ns() - child_.exec_ns;
}

}  // namespace ts
