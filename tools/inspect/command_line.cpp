// See command_line.h.
#include "inspect/command_line.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "inspect/stopped_threads.h"

namespace ts {
namespace {

[[noreturn]] void fail_to_open(pid_t pid, int error) {
  const auto is_there = [](const char* path) { return ::access(path, F_OK) == 0; };
  if (error != EACCES && error != ESRCH && error != ENOENT)
    fail(exit_missing, "cannot inspect process %d: %s", pid, std::strerror(error));
  if (error != EACCES && !is_there("/proc/self"))
    fail(exit_missing, "cannot inspect processes without /proc: mount -t proc proc /proc");
  char executable[64];
  format(executable, sizeof executable, "/proc/%d/exe", pid);
  char target[1];
  const bool has_no_program = ::readlink(executable, target, sizeof target) < 0;
  if (error != EACCES && ::kill(pid, 0) == 0 && has_no_program)
    fail(exit_missing, "process %d has no memory: it is a kernel thread, or has ended", pid);
  if (error != EACCES) fail(exit_missing, "no process %d: find one with pgrep NAME", pid);
  if (::geteuid() == 0)
    fail(exit_missing,
         "process %d: permission denied to ptrace it: in a container, "
         "start it with --cap-add=SYS_PTRACE",
         pid);
  fail(exit_missing,
       "process %d: permission denied to ptrace it: use sudo; or, for "
       "your own processes, sudo sysctl kernel.yama.ptrace_scope=0; in a container, start it with "
       "--cap-add=SYS_PTRACE",
       pid);
}

// The name of its library, or null.
const char* other_allocator(const Process& process) {
  static constexpr const char* others[] = {"jemalloc", "mimalloc", "tcmalloc",
                                           "snmalloc", "rpmalloc", "hoard"};
  for (const Mapping& mapping : process) {
    for (const char* const other : others) {
      if (std::strstr(mapping.name, other) != nullptr &&
          std::strstr(mapping.name, ".so") != nullptr)
        return mapping.name;
    }
  }
  return nullptr;
}

}  // namespace

void expect_open(const Process& process, int error) {
  if (error != 0) fail_to_open(process.pid(), error);
}

void expect_readable(const Process& process, bool is_read) {
  if (!is_read) expect_engine(process, EngineStatus::unreadable);
}

Reason why_without_engine(const Process& process, EngineStatus found) {
  const char* other = other_allocator(process);
  Reason reason{};
  const auto write_reason = [&](const char* words, const char* name) {
    format(reason.text, sizeof reason.text, words, name);
  };
  if (found == EngineStatus::unused && other != nullptr) {
    write_reason(
        "has loaded tsmalloc but not used it; it has also loaded %s, which may take precedence",
        other);
  } else if (found == EngineStatus::unused) {
    write_reason("has loaded tsmalloc but not used it yet%s", "");
  } else if (found == EngineStatus::other_version) {
    write_reason("runs another version of tsmalloc: use that version's command%s", "");
  } else if (found == EngineStatus::none) {
    for (const Mapping& mapping : process) {
      if (other == nullptr && std::strstr(mapping.name, "libtsmalloc") != nullptr)
        other = mapping.name;  // the hardened library, or a teaching heap
    }
    if (other != nullptr)
      write_reason("runs on %s, not on tsmalloc: start it with tsmalloc run -- PROGRAM", other);
    else
      write_reason(
          "does not run on tsmalloc; its malloc is probably the C library's: start it with "
          "tsmalloc run -- PROGRAM%s",
          "");
  }
  return reason;
}

void expect_engine(const Process& process, EngineStatus found) {
  if (found == EngineStatus::engine) return;
  const Reason reason = why_without_engine(process, found);
  fail(exit_missing, "process %d (%s) %s", process.pid(), process.command(),
       found == EngineStatus::unreadable ? "has ended, or its heap is corrupted" : reason.text);
}

void expect_written(int error) {
  if (error != 0) fail(exit_usage, "cannot write the output: %s", strerrordesc_np(error));
}

void open_engine(Process& process, Process::Residency residency, EngineImage& image) {
  expect_open(process, process.open(residency));
  expect_engine(process, image.find(process));
}

void expect_stopped(const Process& process, const StoppedThreads& threads, int error) {
  if (error == 0) return;
  if (error == ETIMEDOUT)
    fail(exit_missing,
         "thread %d of process %d (%s) is blocked in the kernel and cannot be stopped; nothing was "
         "changed: try again",
         threads.stuck_thread(), process.pid(), process.command());
  const std::int64_t tracer = process.status("TracerPid:");
  if (error == EPERM && tracer > 0)
    fail(exit_missing,
         "process %d (%s) is being traced by process %d, a debugger or strace: stop that first",
         process.pid(), process.command(), static_cast<int>(tracer));
  expect_open(process, error == EPERM ? EACCES : ESRCH);
}

const char* CommandLine::next_option() {
  for (; *arguments_ != nullptr; ++arguments_) {
    if (std::strcmp(*arguments_, "--help") == 0 || std::strcmp(*arguments_, "-h") == 0)
      std::exit(std::printf("%s", help_) < 0 || std::fflush(stdout) != 0 ? exit_usage : 0);
    if (operands_ == Operands::processes_or_command && std::strcmp(*arguments_, "--") == 0) {
      if (processes_.are_given())
        fail_at(*arguments_, "give either processes or a command, not both");
      command_ = arguments_ + 1;
      if (*command_ == nullptr) fail_at("--", "missing command");
      return nullptr;
    }
    const bool is_tree = std::strcmp(*arguments_, "--tree") == 0;
    if (operands_ != Operands::process_and_words &&
        (is_tree || std::strcmp(*arguments_, "--cgroup") == 0)) {
      const char* const option = *arguments_++;
      const char* const value = next_word(option);
      --arguments_;
      is_tree ? processes_.add_tree(pid_of(value)) : processes_.add_cgroup(value);
      continue;
    }
    if (**arguments_ == '-') return *arguments_++;
    if (operands_ == Operands::process_and_words && processes_.are_given()) {
      words_.add(*arguments_);
    } else {
      processes_.add(pid_of(*arguments_));
    }
  }
  return nullptr;
}

double CommandLine::next_number(const char* option, double minimum) {
  if (*arguments_ == nullptr) fail_at(option, "needs a number");
  const char* const text = *arguments_++;
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  constexpr double maximum = 1e9;
  if (end == text || *end != '\0' || !(number >= minimum && number <= maximum)) {
    char reason[128];
    format(reason, sizeof reason, "'%s' is not a number of at least %g", text, minimum);
    fail_at(option, reason);
  }
  return number;
}

const char* CommandLine::next_word(const char* option) {
  if (*arguments_ == nullptr) fail_at(option, "needs a value");
  return *arguments_++;
}

void CommandLine::fail_at(const char* argument, const char* reason) const {
  fail(exit_usage, "%s: %s; see tsmalloc %s --help", argument, reason, verb_);
}

pid_t CommandLine::pid_of(const char* word) const {
  char* end = nullptr;
  errno = 0;
  const long pid = std::strtol(word, &end, 10);
  if (errno != 0 || end == word || *end != '\0' || pid <= 0 || pid != static_cast<pid_t>(pid))
    fail_at(word, "not a process ID");
  return static_cast<pid_t>(pid);
}

const Processes& CommandLine::processes() const {
  if (!processes_.are_given())
    fail(exit_usage, "no process given: tsmalloc %s PID; find it with pgrep NAME", verb_);
  return processes_;
}

pid_t CommandLine::pid() const {
  if (!processes().is_single())
    fail(exit_usage, "only one process at a time; see tsmalloc %s --help", verb_);
  return processes_.first();
}

}  // namespace ts
