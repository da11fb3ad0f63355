// The command lines of the verbs that look at a process, and what they say if it cannot be looked
// at.
#pragma once

#include "front/fail.h"
#include "outside/account.h"

namespace ts {

class CommandLine {
 public:
  enum class Takes : std::uint8_t { process, process_and_words, process_or_command };

  // `arguments` are those behind the verb, ended by null.
  CommandLine(const char* verb, const char* help, char** arguments, Takes takes = Takes::process)
      : verb_{verb}, help_{help}, arguments_{arguments}, takes_{takes} {}

  // The next option; null if there is none left. What is no option is the process.
  const char* next_option();
  // What stands behind "--", if that ended the options, and the verb takes a command; else null.
  char** command() const { return command_; }
  // Behind the process, for a verb that takes them.
  const List<const char*>& words() const { return words_; }
  // The value of an option, a number of at least so much.
  double next_number(const char* option, double least);
  const char* next_word(const char* option);

  [[noreturn]] void fail_at(const char* argument, const char* reason) const;
  [[noreturn]] void fail_at_option(const char* option) const { fail_at(option, "no such option"); }
  pid_t pid() const;

 private:
  const char* verb_;
  const char* help_;
  char** arguments_;
  char** command_ = nullptr;
  const char* pid_ = nullptr;
  Takes takes_;
  List<const char*> words_;
};

// They end this process, with a line that names the remedy, where that is not so.
void expect_open(const Process& process, int error);
void expect_engine(const Process& process, Found found);
void expect_readable(const Process& process, bool is_read);
void expect_written(int error);

class StoppedThreads;
// `error` is of stop().
void expect_stopped(const Process& process, const StoppedThreads& threads, int error);

// Opens the process, and finds its engine.
void open_engine(Process& process, Process::Residency residency, EngineImage& image);

}  // namespace ts
