// The command line of a tool that runs one program, as a value.
//
// All errors in a request are found before anything is started: unknown options, numbers with
// trailing characters, library names that the dynamic loader would split in two. Each ends the
// program with status 1 and a message with the remedy.
#pragma once

#include <getopt.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <iterator>
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

// The help of a tool, around the lines that all tools share.
struct ToolHelp {
  const char* purpose;
  const char* own_options;
  const char* exit_status;
};

// The parts of the message: what is wrong, and with which argument.
[[noreturn]] inline void fail_usage(std::initializer_list<const char*> pieces) {
  dprintf(STDERR_FILENO, "%s: ", tool_name());
  for (const char* piece : pieces) dprintf(STDERR_FILENO, "%s", piece);
  dprintf(STDERR_FILENO, "\n  See %s --help.\n", tool_name());
  _exit(exit_usage);
}

inline const char* applied = "";  // the one that is being applied

inline Nanoseconds parse_time(const char* text, Nanoseconds unit_ns) {
  constexpr double maximum = 1e8;  // three years in seconds: far from overflowing Nanoseconds
  char* tail = nullptr;
  const double number = std::strtod(text, &tail);
  const bool is_number = tail != text && *tail == '\0';
  if (!is_number || !(number >= 0) || number > maximum) {
    fail_usage({"--", applied, " must be a number from 0 to 100000000, not '", text, "'."});
  }
  return static_cast<Nanoseconds>(number * static_cast<double>(unit_ns));
}

inline std::uint64_t parse_whole(const char* text, std::int64_t maximum) {
  char* tail = nullptr;
  errno = 0;
  const long long number = std::strtoll(text, &tail, 10);
  if (tail == text || *tail != '\0' || errno != 0 || number < 0 || number > maximum) {
    char limit[24];
    format(limit, sizeof limit, "%lld", static_cast<long long>(maximum));
    fail_usage({"--", applied, " must be a whole number from 0 to ", limit, ", not '", text, "'."});
  }
  return static_cast<std::uint64_t>(number);
}

// The path goes to the loader as given, even if it contains symbolic links: the length of the
// environment is part of the experiment, and a link may be there because the loader could not read
// the real name.
inline void add_preload(Options& options, const char* library) {
  if (options.preload_count == max_preloads) fail_usage({"too many libraries to preload."});
  Preload& preload = options.preloads[options.preload_count++];
  const bool is_searched_by_loader = std::strchr(library, '/') == nullptr;
  if (is_searched_by_loader) {
    format(preload.resolved, sizeof preload.resolved, "%s", library);
  } else if (realpath(library, preload.resolved) == nullptr) {
    fail_usage({"cannot preload '", library, "': ", std::strerror(errno), "."});
  }
  char directory[PATH_MAX] = "";
  const bool is_relative = !is_searched_by_loader && library[0] != '/';
  if (is_relative && getcwd(directory, sizeof directory) == nullptr) {
    fail_internal("cannot determine the current directory", errno);
  }
  format(preload.path, sizeof preload.path, "%s%s%s", directory, is_relative ? "/" : "", library);
  if (preload.path[0] == '\0' || std::strpbrk(preload.path, " :") != nullptr) {
    fail_usage({"cannot preload '", preload.path,
                "': the dynamic loader splits names at spaces and colons; use a link without "
                "them."});
  }
}

inline void add_environment_edit(Options& options, const char* text, bool is_unset) {
  if (options.environment_edit_count == max_environment_edits) {
    fail_usage({"too many environment changes."});
  }
  const char* const equals = std::strchr(text, '=');
  if (is_unset && (equals != nullptr || *text == '\0')) {
    fail_usage({"--unset needs the name of a variable, not '", text, "'."});
  }
  if (!is_unset && (equals == nullptr || equals == text)) {
    fail_usage({"--env needs KEY=VALUE, not '", text, "'."});
  }
  options.environment_edits[options.environment_edit_count++] = {text, is_unset};
}

// SIGTERM ends the whole tree (launch.h), or only this process while there is none.
inline void end_with_parent(const char* argument) {
  const std::uint64_t parent = parse_whole(argument, INT_MAX);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (static_cast<std::uint64_t>(getppid()) != parent)
    fail_usage({"--parent ", argument, " is not the parent of this process."});
}

inline const ToolHelp* tool_help = nullptr;  // while they are parsed
inline Options* found = nullptr;

inline constexpr char common_help_text[] =
    R"(  --output FILE      where to write the line (default: standard output)
  --preload LIBRARY  prepend it to COMMAND's LD_PRELOAD; may be repeated
  --env KEY=VALUE    set a variable in COMMAND's environment; may be repeated
  --unset KEY        remove a variable from COMMAND's environment; may be repeated
  --stdin FILE       COMMAND's standard input (default: inherited)
  --stdout FILE      COMMAND's standard output (default: inherited)
  --stderr FILE      COMMAND's standard error (default: inherited)
  --cwd DIRECTORY    start COMMAND in this directory
  --timeout SECONDS  after that, stop all its processes: SIGTERM, and SIGKILL two seconds later
  --parent PID       also stop them when that process, the parent of this one, ends
)";

inline constexpr Option common_options[] = {
    {"output", [](const char* argument) { found->output = argument; }},
    {"preload", [](const char* argument) { add_preload(*found, argument); }},
    {"env", [](const char* argument) { add_environment_edit(*found, argument, false); }},
    {"unset", [](const char* argument) { add_environment_edit(*found, argument, true); }},
    {"stdin", [](const char* argument) { found->standard_input = argument; }},
    {"stdout", [](const char* argument) { found->standard_output = argument; }},
    {"stderr", [](const char* argument) { found->standard_error = argument; }},
    {"cwd", [](const char* argument) { found->working_directory = argument; }},
    {"timeout",
     [](const char* argument) {
       found->timeout_ns = parse_time(argument, ns_per_second);
       if (found->timeout_ns > 0) return;
       fail_usage({"--timeout must be more than 0 seconds; omit it for no limit."});
     }},
    {"parent", end_with_parent},
    {"help",
     [](const char*) {
       dprintf(STDOUT_FILENO, "usage: %s [options] -- COMMAND [ARGUMENT...]\n%s%s%s%s", tool_name(),
               tool_help->purpose, common_help_text, tool_help->own_options,
               tool_help->exit_status);
       _exit(0);
     },
     true},
};
inline constexpr std::size_t max_options = 16;

// Applies each option among the arguments; exits at an unknown one. `order`: "+" if the first word
// that is not an option ends them, "" if options may follow it. Returns the index of that word.
inline int apply_options(int argument_count, char** arguments, const char* order,
                         std::span<const Option> options) {
  constexpr int first = 256;                   // not a letter's
  option known[max_options + 1] = {};          // ended by an empty entry
  char letters[1 + 2 * max_options + 1] = {};  // likewise
  char* end = stpcpy(letters, order);
  for (std::size_t i = 0; i < options.size(); ++i) {
    const Option& each = options[i];
    known[i] = {each.name, each.is_flag ? no_argument : required_argument, nullptr,
                first + static_cast<int>(i)};
    if (each.letter == '\0') continue;
    *end++ = each.letter;
    if (!each.is_flag) *end++ = ':';
  }
  int flag = 0;
  while ((flag = getopt_long(argument_count, arguments, letters, known, nullptr)) != -1) {
    const auto given = std::find_if(options.begin(), options.end(), [&](const Option& each) {
      return flag == first + (&each - options.data()) || (flag == each.letter && flag != 0);
    });
    if (given == options.end()) {
      fail_usage({"invalid arguments."});  // getopt_long has said which, and why
    }
    applied = given->name;
    given->apply(optarg);
  }
  return optind;
}

// Fills `options` from the arguments; exits if they are wrong, or ask for help.
inline void parse_options(int argument_count, char** arguments, const ToolHelp& help,
                          std::span<const Option> own_options, Options& options) {
  tool_help = &help;
  found = &options;
  Option all[max_options];
  Option* const own = std::copy(std::begin(common_options), std::end(common_options), all);
  Option* const end = std::copy(own_options.begin(), own_options.end(), own);
  // "+": the first word that is not an option begins the command, so the command's own options are
  // never taken for ours.
  const int command = apply_options(argument_count, arguments, "+", {all, end});
  if (command >= argument_count) fail_usage({"no command to run; give it after '--'."});
  options.command = arguments + command;
}

}  // namespace ts
