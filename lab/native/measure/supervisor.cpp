// The event loop; see supervisor.h.
#include "measure/supervisor.h"

#include <sys/wait.h>

#include <algorithm>

namespace ts {
namespace {

Nanoseconds to_ns(const timeval& time) {
  return time.tv_sec * ns_per_second + time.tv_usec * ns_per_us;
}

}  // namespace

void Usage::add(const rusage& usage) {
  user_ns += to_ns(usage.ru_utime);
  system_ns += to_ns(usage.ru_stime);
  peak_rss_bytes = std::max<std::int64_t>(peak_rss_bytes, usage.ru_maxrss * 1024);
  minor_faults += usage.ru_minflt;
  major_faults += usage.ru_majflt;
  voluntary_switches += usage.ru_nvcsw;
  involuntary_switches += usage.ru_nivcsw;
}

Supervisor::Supervisor(const Options& options, const SamplingOptions& sampling,
                       const StartedChild& child)
    : child_{child},
      end_{options.timeout_ns, child.exec_ns},
      sampler_{sampling, child.exec_ns},
      preload_proof_{options, child.exec_ns} {}

bool Supervisor::reap() {
  int status = 0;
  rusage usage{};
  pid_t ended = 0;
  while ((ended = wait4(-1, &status, WNOHANG, &usage)) > 0) {
    usage_.add(usage);
    if (ended == child_.pid) {
      end_.note_root_end(status);
      wall_ns_ = now_ns() - child_.exec_ns;
    } else {
      end_.note_other_end(status);
    }
  }
  return ended == 0;  // otherwise ECHILD
}

void Supervisor::look_around() {
  const Nanoseconds now = now_ns();
  if (preload_proof_.due_ns() <= now && !end_.root_ended()) preload_proof_.look(child_.pid);
  if (sampler_.due_ns() <= now) sampler_.sample(end_.tree(), child_.pid);
}

void Supervisor::wait_for_event() {
  const Nanoseconds proof_due_ns = end_.root_ended() ? never_ns : preload_proof_.due_ns();
  const int signal =
      wait_for_signal(std::min({end_.deadline_ns(), proof_due_ns, sampler_.due_ns()}));
  if (signal != 0 && signal != SIGCHLD) end_.interrupt();
}

void Supervisor::run() {
  while (reap() && !end_.gives_up()) {
    end_.pass_deadline_if_due();
    look_around();
    wait_for_event();
  }
  if (!end_.root_ended()) wall_ns_ = now_ns() - child_.exec_ns;
}

}  // namespace ts
