// An interval timer; see timeout.h.
#include "replay/timeout.h"

#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>

namespace ts::replay {
namespace {

constexpr char line[] = "{\"schema\": \"tsmalloc-replay/1\", \"timed_out\": true}\n";
constexpr char message[] =
    "replay: the time is up; the allocator hangs, or --timeout needs to be longer.\n";

constinit volatile sig_atomic_t is_child = 0;

void end(int /*signal*/) {
  if (is_child == 0) {
    // A failure could not be told.
    [[maybe_unused]] ssize_t written = write(STDOUT_FILENO, line, sizeof line - 1);
    written = write(STDERR_FILENO, message, sizeof message - 1);
  }
  _exit(exit_timed_out);
}

void set_timer(Nanoseconds after_ns) {
  const Nanoseconds at_least_us = after_ns > ns_per_us ? after_ns / ns_per_us : 1;
  itimerval timer = {};
  timer.it_value.tv_sec = at_least_us / 1'000'000;
  timer.it_value.tv_usec = at_least_us % 1'000'000;
  if (setitimer(ITIMER_REAL, &timer, nullptr) != 0) fail_internal("setitimer", errno);
}

}  // namespace

void arm_timeout(Nanoseconds timeout_ns) {
  if (timeout_ns == 0) return;
  struct sigaction action = {};
  action.sa_handler = end;
  sigaction(SIGALRM, &action, nullptr);
  set_timer(timeout_ns);
}

void rearm_timeout(Nanoseconds timeout_ns, Nanoseconds begin_ns) {
  if (timeout_ns == 0) return;
  is_child = 1;
  set_timer(timeout_ns - (now_ns() - begin_ns));
}

}  // namespace ts::replay
