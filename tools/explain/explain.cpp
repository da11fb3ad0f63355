// The command lines of `explain` and `top`, and what they say if there is no account.
#include "explain/explain.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "explain/report.h"
#include "explain/watch.h"
#include "front/fail.h"

namespace ts {
namespace {

constexpr char help_of_explain[] =
    R"(Usage: tsmalloc explain [--json | --prometheus] PID

Say where the resident memory of a running process is. The parts: blocks of the program, free room
beside them, memory that waits to go back, and what is not the allocator's. The process needs no
preparation but to run with tsmalloc; nothing is called in it, and it is not stopped.

  --json        One line of JSON, in bytes.
  --prometheus  The text format of Prometheus, in bytes.

To look at a process takes the rights of a debugger. Exit status: 1 wrong usage, or the answer
cannot be written; 2 there is no account: no such process, no tsmalloc in it, another version of it,
nothing served yet, or no right to look.
)";
constexpr char help_of_top[] =
    R"(Usage: tsmalloc top [--interval SECONDS] [--count N] [--json] PID

Show again and again where the resident memory of a process is, and how that changes. A terminal
gets a screen, a pipe gets lines. It ends with the process, or by Ctrl-C.

  --interval SECONDS  How long to wait in between, 0.1 at least; 1 by default.
  --count N           Look so many times.
  --json              A line of JSON each time, as of explain --json.

To look at a process takes the rights of a debugger. Exit status: 1 wrong usage, or the answer
cannot be written; 2 there is no account: no such process, no tsmalloc in it, another version of it,
nothing served yet, or no right to look.
)";

// ---- what is said if there is no account ----

[[noreturn]] void fail_to_look(pid_t pid, int error) {
  if (error != EACCES)
    fail(exit_missing, "there is no process %d, or it has ended: pgrep NAME finds a process", pid);
  fail(exit_missing,
       "process %d may not be looked at, which takes the rights of a debugger: use sudo; or, for "
       "your own processes, sudo sysctl kernel.yama.ptrace_scope=0; in a container, start it with "
       "--cap-add=SYS_PTRACE",
       pid);
}

[[noreturn]] void fail_without_engine(const Process& process) {
  static constexpr const char* others[] = {"libtsmalloc", "jemalloc", "mimalloc", "tcmalloc",
                                           "snmalloc",    "rpmalloc", "hoard"};
  for (const Mapping& mapping : process) {
    for (const char* const other : others) {
      if (std::strstr(mapping.name, other) == nullptr) continue;
      fail(exit_missing,
           "process %d (%s) has %s, and not tsmalloc's engine: start it by tsmalloc run -- PROGRAM",
           process.pid(), process.command(), mapping.name);
    }
  }
  fail(exit_missing,
       "process %d (%s) has no tsmalloc; its malloc is probably the C library's: start it by "
       "tsmalloc run -- PROGRAM",
       process.pid(), process.command());
}

void expect_account(const Process& process, Found found) {
  switch (found) {
    case Found::engine:
      return;
    case Found::none:
      fail_without_engine(process);
    case Found::unused:
      fail(exit_missing, "process %d (%s) has tsmalloc, which has served nothing yet",
           process.pid(), process.command());
    case Found::other_version:
      fail(exit_missing,
           "process %d (%s) has another version of tsmalloc: use the command that belongs to it",
           process.pid(), process.command());
    case Found::unreadable:
      fail(exit_missing, "process %d (%s) has ended, or its memory is damaged", process.pid(),
           process.command());
  }
}

// ---- the command lines ----

class CommandLine {
 public:
  CommandLine(const char* verb, const char* help, char** arguments)
      : verb_{verb}, help_{help}, arguments_{arguments} {}

  // The next option; null if there is none left. What is no option is the process.
  const char* next_option() {
    for (; *arguments_ != nullptr; ++arguments_) {
      if (std::strcmp(*arguments_, "--help") == 0 || std::strcmp(*arguments_, "-h") == 0)
        std::exit(std::printf("%s", help_) < 0 || std::fflush(stdout) != 0 ? exit_usage : 0);
      if (**arguments_ == '-') return *arguments_++;
      if (pid_ != nullptr) fail_at(*arguments_, "one process at a time");
      pid_ = *arguments_;
    }
    return nullptr;
  }

  // The value of an option, a number of at least so much.
  double next_number(const char* option, double least) {
    if (*arguments_ == nullptr) fail_at(option, "a number is missing behind it");
    const char* const text = *arguments_++;
    char* end = nullptr;
    const double number = std::strtod(text, &end);
    constexpr double most = 1e9;
    if (end == text || *end != '\0' || !(number >= least && number <= most))
      fail_at(text, "not such a number");
    return number;
  }

  [[noreturn]] void fail_at(const char* argument, const char* reason) const {
    fail(exit_usage, "%s: %s: tsmalloc %s --help tells the usage", argument, reason, verb_);
  }

  pid_t pid() const {
    if (pid_ == nullptr)
      fail(exit_usage, "no process is named: tsmalloc %s PID; pgrep NAME finds it", verb_);
    char* end = nullptr;
    errno = 0;
    const long pid = std::strtol(pid_, &end, 10);
    if (errno != 0 || end == pid_ || *end != '\0' || pid <= 0 || pid != static_cast<pid_t>(pid))
      fail_at(pid_, "no process number");
    return static_cast<pid_t>(pid);
  }

 private:
  const char* verb_;
  const char* help_;
  char** arguments_;
  const char* pid_ = nullptr;
};

void expect_written(int error) {
  if (error != 0) fail(exit_usage, "the answer cannot be written: %s", strerrordesc_np(error));
}

}  // namespace

int explain(char** arguments) {
  auto* print = print_text;
  CommandLine line{"explain", help_of_explain, arguments};
  while (const char* const option = line.next_option()) {
    if (std::strcmp(option, "--json") == 0) {
      print = print_json;
    } else if (std::strcmp(option, "--prometheus") == 0) {
      print = print_prometheus;
    } else {
      line.fail_at(option, "no such option");
    }
  }
  static Account account;
  Process process{line.pid()};
  if (const int error = process.open(); error != 0) fail_to_look(process.pid(), error);
  expect_account(process, take_account(process, account));
  expect_written(print(process, account));
  return 0;
}

int top(char** arguments) {
  Watch watch;
  CommandLine line{"top", help_of_top, arguments};
  while (const char* const option = line.next_option()) {
    if (std::strcmp(option, "--interval") == 0) {
      watch.seconds = line.next_number(option, 0.1);
    } else if (std::strcmp(option, "--count") == 0) {
      watch.times = static_cast<std::size_t>(line.next_number(option, 1));
    } else if (std::strcmp(option, "--json") == 0) {
      watch.is_json = true;
    } else {
      line.fail_at(option, "no such option");
    }
  }
  static Account account;
  for (const pid_t pid = line.pid(); watch.goes_on();) {
    Process process{pid};
    const int error = process.open();
    if (error != 0 && (error != ESRCH || !watch.has_begun())) {
      watch.end();
      fail_to_look(pid, error);
    }
    const Found found = error == 0 ? take_account(process, account) : Found::unreadable;
    if (found != Found::engine && watch.has_begun()) {
      watch.end();
      std::fprintf(stderr, "tsmalloc: process %d has ended, or runs another program\n", pid);
      return 0;
    }
    expect_account(process, found);
    if (const int unwritten = watch.show(process, account); unwritten != 0) {
      watch.end();
      expect_written(unwritten);
    }
  }
  watch.end();
  return 0;
}

}  // namespace ts
