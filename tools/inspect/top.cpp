// `top`: repeated accounts of a process, or of a command that it starts.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "front/run.h"
#include "inspect/command_line.h"
#include "inspect/verbs.h"
#include "inspect/watch.h"

namespace ts {
namespace {

constexpr char help_of_top[] =
    "Usage: tsmalloc top [--interval SECONDS] [--count N] [--json | --pages]\n"
    "                    " TSMALLOC_USAGE_OF_PROCESSES R"(
       tsmalloc top [--interval SECONDS] [--count N] [--json | --pages] -- COMMAND [ARGUMENT...]

Show continuously where the resident memory of a process is, and how that changes: a screen on a
terminal, lines in a pipe. It ends with the process, or on Ctrl-C. For several processes, the screen has
a row for each, in proportional set sizes; a line has their totals.

Examples:
  tsmalloc top 4711
  tsmalloc top --interval 0.1 -- ./server --selftest

COMMAND is started with tsmalloc; inspecting it needs no privileges. Its output is shown when the screen
ends; without a screen, the lines of top go to standard error. The exit status is that of COMMAND, or 128
plus the number of the signal that ended it.

  --interval SECONDS  Time between updates, at least 0.001; 1 by default.
  --count N           Stop after N updates.
  --json              A line of JSON per update, as explain --json prints.
  --pages             On a terminal, a map of the allocator's memory, as explain --map prints.
)" TSMALLOC_HELP_OF_PROCESSES R"(
Permissions and exit status: as for explain.
)";

// How far, in bytes, the sum of the parts may be from the kernel's before everything is queried
// again.
constexpr std::size_t tolerance(std::size_t resident) { return (resident >> 9) + (1UL << 20); }

// Queries the kernel about memory that was resident in earlier samples in turns, and about all of
// it if the sum would differ from the kernel's.
bool take_next_account(Process& process, const EngineImage& image, Account& account,
                       List<MapPiece>* map) {
  static ResidencyCache cached;
  const std::uintptr_t base = image.map().base;
  const auto take = [&] {
    if (map != nullptr) map->clear();
    return take_account(process, &image, AccountBasis::kernel, account, {nullptr, map});
  };
  cached.begin_look({base, base + image.committed_pages() * engine::page_bytes});
  process.trust(cached);
  if (!take()) return false;
  const auto kernels = static_cast<std::size_t>(process.status("VmRSS:")) << 10;
  const std::size_t off = std::max(account.resident, kernels) - std::min(account.resident, kernels);
  if (off <= tolerance(kernels) || !cached.forget()) return true;
  process.forget_residency();
  return take();
}

// Takes one sample. False if the process has ended; the first time, ends this process instead.
bool look(Watch& watch, pid_t pid) {
  static Report report;
  static List<MapPiece> map;
  Process process{pid};
  EngineImage image;
  const int error = process.open(Process::Residency::read);
  const EngineStatus found = error == 0 ? image.find(process) : EngineStatus::unreadable;
  report.reason = why_without_engine(process, found);
  const bool is_taken =
      found == EngineStatus::engine
          ? take_next_account(process, image, report.account, watch.has_map ? &map : nullptr)
          : found != EngineStatus::unreadable &&
                take_account(process, nullptr, AccountBasis::kernel, report.account);
  if (!is_taken && watch.has_begun() && (error == 0 || error == ESRCH)) return false;
  if (!is_taken) {
    watch.end();
    expect_open(process, error);
    expect_readable(process, is_taken);
  }
  if (const int unwritten = watch.show(report, map); unwritten != 0) {
    watch.end();
    expect_written(unwritten);
  }
  return true;
}

int watch_process(Watch& watch, pid_t pid) {
  bool is_there = true;
  while (watch.should_continue() && is_there) is_there = look(watch, pid);
  watch.end();
  if (!is_there)
    std::fprintf(stderr, "tsmalloc: process %d has ended, or can no longer be read\n", pid);
  return 0;
}

// After the first sample, processes that cannot be read are left out silently.
int watch_processes(Watch& watch, const Processes& processes) {
  int status = 0;
  List<pid_t> pids;
  while (watch.should_continue()) {
    const bool is_first = !watch.has_begun();
    processes.list(pids);
    Reports reports{pids, processes.cgroup_anonymous(), watch.is_json, !is_first};
    if (is_first) status = reports.status();
    if (reports.begin() == reports.end()) {
      watch.end();
      fail(exit_missing, "none of these processes is left, or can be read");
    }
    if (const int unwritten = watch.show(reports); unwritten != 0) {
      watch.end();
      expect_written(unwritten);
    }
  }
  watch.end();
  return status;
}

// ---- a command ----

// Where a command's output goes while the screen is in use.
class Output {
 public:
  // Redirects this process's standard output and error there; for a child.
  void take(bool has_screen) {
    if (!has_screen) return;
    char path[] = "/tmp/tsmalloc-top-XXXXXX";
    descriptor_ = mkostemp(path, O_CLOEXEC);
    if (descriptor_ < 0)
      fail(exit_missing,
           "cannot create a file for the command's output: %s; redirect it: ... >FILE 2>&1",
           strerrordesc_np(errno));
    unlink(path);
  }
  void replace_standard_streams() const {
    if (descriptor_ < 0) return;
    dup2(descriptor_, STDOUT_FILENO);
    dup2(descriptor_, STDERR_FILENO);
  }
  void print() const {
    if (descriptor_ < 0) return;
    lseek(descriptor_, 0, SEEK_SET);
    char bytes[4096];
    for (ssize_t count; (count = read(descriptor_, bytes, sizeof bytes)) > 0;) {
      if (std::fwrite(bytes, 1, static_cast<std::size_t>(count), stdout) == 0) break;
    }
    expect_written(std::fflush(stdout) == 0 ? 0 : errno);
  }

 private:
  int descriptor_ = -1;
};

bool has_ended(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == child;
}

// Waits until the command's program has allocated; before exec it is still this one. False if it
// ends first, or has no tsmalloc for long.
bool has_begun(pid_t child) {
  constexpr useconds_t pause_us = 10'000;
  constexpr int patience = 1000;
  for (int i = 0; i < patience && !has_ended(child); ++i, usleep(pause_us)) {
    Process process{child};
    EngineImage image;
    if (process.open(Process::Residency::none) == 0 && image.find(process) == EngineStatus::engine)
      return true;
  }
  return false;
}

int watch_command(Watch& watch, char** command) {
  watch.begin_with_command();
  Output output;
  output.take(watch.has_screen());
  const pid_t child = fork();
  if (child < 0) fail(exit_missing, "cannot start a process: %s", strerrordesc_np(errno));
  if (child == 0) {
    watch.restore_signals();
    output.replace_standard_streams();
    run_under("tsmalloc", command);
  }
  bool is_there = has_begun(child);
  while (is_there && watch.should_continue()) is_there = !has_ended(child) && look(watch, child);
  watch.end();
  if (const int signal = watch.signal(); signal != 0) kill(child, signal);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  output.print();
  constexpr int min_start_failure = 126;  // it was not started, which was reported
  if (!watch.has_begun() && !(WIFEXITED(status) && WEXITSTATUS(status) >= min_start_failure))
    std::fprintf(stderr,
                 "tsmalloc: %s ended before it could be inspected, or did not use tsmalloc\n",
                 command[0]);
  constexpr int of_signal = 128;
  return WIFEXITED(status) ? WEXITSTATUS(status) : of_signal + WTERMSIG(status);
}

}  // namespace

int top(char** arguments) {
  Watch watch;
  CommandLine line{"top", help_of_top, arguments, CommandLine::Operands::processes_or_command};
  while (const char* const option = line.next_option()) {
    if (std::strcmp(option, "--interval") == 0) {
      watch.seconds = line.next_number(option, 0.001);
    } else if (std::strcmp(option, "--count") == 0) {
      watch.times = static_cast<std::size_t>(line.next_number(option, 1));
    } else if (std::strcmp(option, "--json") == 0) {
      watch.is_json = true;
    } else if (std::strcmp(option, "--pages") == 0) {
      watch.has_map = true;
    } else {
      line.fail_at_option(option);
    }
  }
  if (line.command() != nullptr) return watch_command(watch, line.command());
  if (line.processes().is_single() || watch.has_map) return watch_process(watch, line.pid());
  return watch_processes(watch, line.processes());
}

}  // namespace ts
