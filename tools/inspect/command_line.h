// The command lines of the verbs that inspect processes, and their errors if one cannot be
// inspected.
#pragma once

#include "front/fail.h"
#include "inspect/account.h"
#include "inspect/processes.h"

namespace ts {

// For every verb that takes several processes.
#define TSMALLOC_USAGE_OF_PROCESSES "PID... | --tree PID | --cgroup PATH"
#define TSMALLOC_HELP_OF_PROCESSES                                                                 \
  "  --tree PID      The process and all its descendants.\n"                                       \
  "  --cgroup PATH   All processes of a control group, such as a container or a service, and of\n" \
  "                  groups in it: its directory, or its path below /sys/fs/cgroup.\n"

class CommandLine {
 public:
  enum class Operands : std::uint8_t { processes, process_and_words, processes_or_command };

  // `arguments` are those after the verb, null-terminated.
  CommandLine(const char* verb, const char* help, char** arguments,
              Operands takes = Operands::processes)
      : verb_{verb}, help_{help}, arguments_{arguments}, operands_{takes} {}

  // The next option that does not name processes; null if none is left.
  const char* next_option();
  // What follows "--", if that ended the options and the verb takes a command; otherwise null.
  char** command() const { return command_; }
  // What follows the process, for a verb that takes arguments.
  const List<const char*>& words() const { return words_; }
  // The value of an option, a number of at least this much.
  double next_number(const char* option, double minimum);
  const char* next_word(const char* option);

  [[noreturn]] void fail_at(const char* argument, const char* reason) const;
  [[noreturn]] void fail_at_option(const char* option) const { fail_at(option, "unknown option"); }
  // The process named, for verbs that take one.
  pid_t pid() const;
  // Ends this process if no process is named.
  const Processes& processes() const;

 private:
  pid_t pid_of(const char* word) const;

  const char* verb_;
  const char* help_;
  char** arguments_;
  char** command_ = nullptr;
  Processes processes_;
  Operands operands_;
  List<const char*> words_;
};

// These check requirements, and otherwise end this process with a line that names the remedy.
void expect_open(const Process& process, int error);
// Why there is no engine to inspect, in words; "" if the process cannot be read.
struct Reason {
  char text[192];
};
Reason why_without_engine(const Process& process, EngineStatus found);
void expect_engine(const Process& process, EngineStatus found);
void expect_readable(const Process& process, bool is_read);
void expect_written(int error);

class StoppedThreads;
// `error` is the result of stop().
void expect_stopped(const Process& process, const StoppedThreads& threads, int error);

// Opens the process, and finds its engine.
void open_engine(Process& process, Process::Residency residency, EngineImage& image);

}  // namespace ts
