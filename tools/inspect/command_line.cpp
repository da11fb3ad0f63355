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

[[noreturn]] void fail_to_look(pid_t pid, int error) {
  const auto is_there = [](const char* path) { return ::access(path, F_OK) == 0; };
  if (error != EACCES && error != ESRCH && error != ENOENT)
    fail(exit_missing, "process %d cannot be looked at: %s", pid, std::strerror(error));
  if (error != EACCES && !is_there("/proc/self"))
    fail(exit_missing, "no process can be looked at without /proc: mount -t proc proc /proc");
  char executable[64];
  format(executable, sizeof executable, "/proc/%d/exe", pid);
  char target[1];
  const bool has_no_program = ::readlink(executable, target, sizeof target) < 0;
  if (error != EACCES && ::kill(pid, 0) == 0 && has_no_program)
    fail(exit_missing, "process %d has no memory: it is a thread of the kernel, or has ended", pid);
  if (error != EACCES)
    fail(exit_missing, "there is no process %d, or it has ended: pgrep NAME finds a process", pid);
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

// The name of its library; null if there is none.
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
  if (error != 0) fail_to_look(process.pid(), error);
}

void expect_readable(const Process& process, bool is_read) {
  if (!is_read) expect_engine(process, Found::unreadable);
}

Reason why_without_engine(const Process& process, Found found) {
  const char* other = other_allocator(process);
  Reason reason{};
  const auto say = [&](const char* words, const char* name) {
    format(reason.text, sizeof reason.text, words, name);
  };
  if (found == Found::unused && other != nullptr) {
    say("has tsmalloc, which has served nothing; it also has %s, which may come before it", other);
  } else if (found == Found::unused) {
    say("has tsmalloc, which has served nothing yet%s", "");
  } else if (found == Found::other_version) {
    say("has another version of tsmalloc: use the command that belongs to it%s", "");
  } else if (found == Found::none) {
    for (const Mapping& mapping : process) {
      if (other == nullptr && std::strstr(mapping.name, "libtsmalloc") != nullptr)
        other = mapping.name;  // the hardened library, or a teaching heap
    }
    if (other != nullptr)
      say("has %s, and not tsmalloc's engine: start it by tsmalloc run -- PROGRAM", other);
    else
      say("has no tsmalloc; its malloc is probably the C library's: start it by "
          "tsmalloc run -- PROGRAM%s",
          "");
  }
  return reason;
}

void expect_engine(const Process& process, Found found) {
  if (found == Found::engine) return;
  const Reason reason = why_without_engine(process, found);
  fail(exit_missing, "process %d (%s) %s", process.pid(), process.command(),
       found == Found::unreadable ? "has ended, or its memory is damaged" : reason.text);
}

void expect_written(int error) {
  if (error != 0) fail(exit_usage, "the answer cannot be written: %s", strerrordesc_np(error));
}

void open_engine(Process& process, Process::Residency residency, EngineImage& image) {
  expect_open(process, process.open(residency));
  expect_engine(process, image.find(process));
}

void expect_stopped(const Process& process, const StoppedThreads& threads, int error) {
  if (error == 0) return;
  if (error == ETIMEDOUT)
    fail(exit_missing,
         "thread %d of process %d (%s) waits in the kernel and cannot be stopped; nothing was "
         "changed: try again",
         threads.laggard(), process.pid(), process.command());
  const std::int64_t tracer = process.status("TracerPid:");
  if (error == EPERM && tracer > 0)
    fail(exit_missing,
         "process %d (%s) is traced by process %d, a debugger or strace: end that first",
         process.pid(), process.command(), static_cast<int>(tracer));
  expect_open(process, error == EPERM ? EACCES : ESRCH);
}

const char* CommandLine::next_option() {
  for (; *arguments_ != nullptr; ++arguments_) {
    if (std::strcmp(*arguments_, "--help") == 0 || std::strcmp(*arguments_, "-h") == 0)
      std::exit(std::printf("%s", help_) < 0 || std::fflush(stdout) != 0 ? exit_usage : 0);
    if (takes_ == Takes::processes_or_command && std::strcmp(*arguments_, "--") == 0) {
      if (processes_.are_named()) fail_at(*arguments_, "processes, and a command as well");
      command_ = arguments_ + 1;
      if (*command_ == nullptr) fail_at("--", "the command is missing");
      return nullptr;
    }
    const bool is_tree = std::strcmp(*arguments_, "--tree") == 0;
    if (takes_ != Takes::process_and_words &&
        (is_tree || std::strcmp(*arguments_, "--cgroup") == 0)) {
      const char* const option = *arguments_++;
      const char* const value = next_word(option);
      --arguments_;
      is_tree ? processes_.add_tree(pid_of(value)) : processes_.add_cgroup(value);
      continue;
    }
    if (**arguments_ == '-') return *arguments_++;
    if (takes_ == Takes::process_and_words && processes_.are_named()) {
      words_.add(*arguments_);
    } else {
      processes_.add(pid_of(*arguments_));
    }
  }
  return nullptr;
}

double CommandLine::next_number(const char* option, double least) {
  if (*arguments_ == nullptr) fail_at(option, "a number is missing behind it");
  const char* const text = *arguments_++;
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  constexpr double most = 1e9;
  if (end == text || *end != '\0' || !(number >= least && number <= most)) {
    char reason[128];
    format(reason, sizeof reason, "%s is no number from %g on", text, least);
    fail_at(option, reason);
  }
  return number;
}

const char* CommandLine::next_word(const char* option) {
  if (*arguments_ == nullptr) fail_at(option, "a value is missing behind it");
  return *arguments_++;
}

void CommandLine::fail_at(const char* argument, const char* reason) const {
  fail(exit_usage, "%s: %s: tsmalloc %s --help tells the usage", argument, reason, verb_);
}

pid_t CommandLine::pid_of(const char* word) const {
  char* end = nullptr;
  errno = 0;
  const long pid = std::strtol(word, &end, 10);
  if (errno != 0 || end == word || *end != '\0' || pid <= 0 || pid != static_cast<pid_t>(pid))
    fail_at(word, "no process number");
  return static_cast<pid_t>(pid);
}

const Processes& CommandLine::processes() const {
  if (!processes_.are_named())
    fail(exit_usage, "no process is named: tsmalloc %s PID; pgrep NAME finds it", verb_);
  return processes_;
}

pid_t CommandLine::pid() const {
  if (!processes().is_one())
    fail(exit_usage, "one process at a time: tsmalloc %s --help tells the usage", verb_);
  return processes_.first();
}

}  // namespace ts
