// The command line of a tool that runs one program, as a value.
//
// All errors in a request are found before anything is started: unknown options, numbers with
// trailing characters, library names that the dynamic loader would split in two. Each ends the
// program with status 1 and a message with the remedy.
#pragma once

#include <climits>
#include <cstddef>
#include <initializer_list>
#include <span>

#include "common/system.h"

namespace ts {

inline constexpr std::size_t max_preloads = 16;
inline constexpr std::size_t max_environment_edits = 256;

struct Preload {
  char path[PATH_MAX];      // for LD_PRELOAD: absolute, or a bare name for the loader's search
  char resolved[PATH_MAX];  // as /proc/PID/maps shows it: without symbolic links; or the bare name
};

struct EnvironmentEdit {
  const char* assignment;  // "KEY=VALUE" to set, or "KEY" to unset
  bool is_unset;
};

struct Options {
  char** command = nullptr;      // null-terminated, as execvp wants it
  const char* output = nullptr;  // null: standard output
  const char* standard_input = nullptr;
  const char* standard_output = nullptr;
  const char* standard_error = nullptr;
  const char* working_directory = nullptr;
  Nanoseconds timeout_ns = 0;  // 0: none
  std::size_t preload_count = 0;
  std::size_t environment_edit_count = 0;
  Preload preloads[max_preloads] = {};
  EnvironmentEdit environment_edits[max_environment_edits] = {};
};

// An option and its action.
struct Option {
  const char* name;                     // without the dashes
  void (*apply)(const char* argument);  // null for a flag
  bool is_flag = false;
  char letter = '\0';  // for a short form
};

// Applies each option among the arguments; exits at an unknown one. `order`: "+" if the first word
// that is not an option ends them, "" if options may follow it. Returns the index of that word.
int apply_options(int argument_count, char** arguments, const char* order,
                  std::span<const Option> options);

// The help of a tool, around the lines that all tools share.
struct ToolHelp {
  const char* purpose;
  const char* own_options;
  const char* exit_status;
};

// Fills `options` from the arguments; exits if they are wrong, or ask for help.
void parse_options(int argument_count, char** arguments, const ToolHelp& help,
                   std::span<const Option> own_options, Options& options);

// For a tool's own options; each exits if the text is invalid.
Nanoseconds parse_timeout(const char* text);
Nanoseconds parse_time(const char* option, const char* text, Nanoseconds unit_ns);
std::int64_t parse_whole(const char* option, const char* text, std::int64_t maximum);

// The parts of the message: what is wrong, and with which argument.
[[noreturn]] void fail_usage(std::initializer_list<const char*> pieces);

}  // namespace ts
