// Parsing of the command line; see options.h.
#include "launch/options.h"

#include <getopt.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace ts {
namespace {

constexpr char common_help_text[] =
    R"(  --output FILE      where the line goes (default: standard output)
  --preload LIBRARY  put it into COMMAND's LD_PRELOAD, before what is there; may be repeated
  --env KEY=VALUE    set a variable in COMMAND's environment; may be repeated
  --unset KEY        remove a variable from COMMAND's environment; may be repeated
  --stdin FILE       COMMAND's standard input (default: inherited)
  --stdout FILE      likewise
  --stderr FILE      likewise
  --cwd DIRECTORY    start COMMAND in this directory
  --timeout SECONDS  then end all its processes: SIGTERM, and SIGKILL two seconds later
)";

// The path goes to the loader as it was given, even where a symbolic link could be followed: the
// length of the environment is part of the experiment, and a link may be there because the loader
// could not read the real name.
void add_preload(Options& options, const char* library) {
  if (options.preload_count == max_preloads) fail_usage({"too many libraries to preload."});
  Preload& preload = options.preloads[options.preload_count++];
  const bool loader_searches_for_it = std::strchr(library, '/') == nullptr;
  if (loader_searches_for_it) {
    format(preload.resolved, sizeof preload.resolved, "%s", library);
  } else if (realpath(library, preload.resolved) == nullptr) {
    fail_usage({"cannot preload '", library, "': ", std::strerror(errno), "."});
  }
  char directory[PATH_MAX] = "";
  const bool is_relative = !loader_searches_for_it && library[0] != '/';
  if (is_relative && getcwd(directory, sizeof directory) == nullptr) {
    fail_internal("cannot tell the current directory", errno);
  }
  format(preload.path, sizeof preload.path, "%s%s%s", directory, is_relative ? "/" : "", library);
  if (preload.path[0] == '\0' || std::strpbrk(preload.path, " :") != nullptr) {
    fail_usage({"cannot preload '", preload.path,
                "': the dynamic loader splits names at spaces and colons; name a link without."});
  }
}

void add_environment_edit(Options& options, const char* text, bool is_unset) {
  if (options.environment_edit_count == max_environment_edits) {
    fail_usage({"too many changes of the environment."});
  }
  const char* const equals = std::strchr(text, '=');
  if (is_unset && (equals != nullptr || *text == '\0')) {
    fail_usage({"--unset wants the name of a variable, not '", text, "'."});
  }
  if (!is_unset && (equals == nullptr || equals == text)) {
    fail_usage({"--env wants KEY=VALUE, not '", text, "'."});
  }
  options.environment_edits[options.environment_edit_count++] = {text, is_unset};
}

enum Flag : int {
  output = 256,
  preload,
  env,
  unset,
  in,
  out,
  error,
  timeout,
  cwd,
  help,
  first_own  // and on: the options of one tool
};

constexpr option common_options[] = {{"output", required_argument, nullptr, Flag::output},
                                     {"preload", required_argument, nullptr, Flag::preload},
                                     {"env", required_argument, nullptr, Flag::env},
                                     {"unset", required_argument, nullptr, Flag::unset},
                                     {"stdin", required_argument, nullptr, Flag::in},
                                     {"stdout", required_argument, nullptr, Flag::out},
                                     {"stderr", required_argument, nullptr, Flag::error},
                                     {"timeout", required_argument, nullptr, Flag::timeout},
                                     {"cwd", required_argument, nullptr, Flag::cwd},
                                     {"help", no_argument, nullptr, Flag::help}};

[[noreturn]] void print_help(const ToolHelp& help) {
  dprintf(STDOUT_FILENO, "usage: %s [options] -- COMMAND [ARGUMENT...]\n%s%s%s%s", tool_name(),
          help.purpose, common_help_text, help.own_options, help.exit_status);
  _exit(0);
}

void apply(Options& options, int flag, const char* argument) {
  switch (flag) {
    case Flag::output:
      options.output = argument;
      break;
    case Flag::preload:
      add_preload(options, argument);
      break;
    case Flag::env:
      add_environment_edit(options, argument, false);
      break;
    case Flag::unset:
      add_environment_edit(options, argument, true);
      break;
    case Flag::in:
      options.standard_input = argument;
      break;
    case Flag::out:
      options.standard_output = argument;
      break;
    case Flag::error:
      options.standard_error = argument;
      break;
    case Flag::cwd:
      options.working_directory = argument;
      break;
    case Flag::timeout:
      options.timeout_ns = parse_time("--timeout", argument, ns_per_second);
      if (options.timeout_ns == 0) {
        fail_usage({"--timeout wants more than 0 seconds; leave it out for no limit."});
      }
      break;
    default:
      fail_usage({"the arguments are wrong."});  // getopt_long has said which, and why
  }
}

}  // namespace

void fail_usage(std::initializer_list<const char*> pieces) {
  dprintf(STDERR_FILENO, "%s: ", tool_name());
  for (const char* piece : pieces) dprintf(STDERR_FILENO, "%s", piece);
  dprintf(STDERR_FILENO, "\n  %s --help lists the options.\n", tool_name());
  _exit(exit_usage);
}

Nanoseconds parse_time(const char* option, const char* text, Nanoseconds unit_ns) {
  constexpr double most = 1e8;  // three years in seconds: far from overflowing Nanoseconds
  char* tail = nullptr;
  const double number = std::strtod(text, &tail);
  const bool is_number = tail != text && *tail == '\0';
  if (!is_number || !(number >= 0) || number > most) {
    fail_usage({option, " wants a number from 0 to 100000000, not '", text, "'."});
  }
  return static_cast<Nanoseconds>(number * static_cast<double>(unit_ns));
}

std::int64_t parse_whole(const char* option, const char* text, std::int64_t most) {
  char* tail = nullptr;
  errno = 0;
  const long long number = std::strtoll(text, &tail, 10);
  if (tail == text || *tail != '\0' || errno != 0 || number < 0 || number > most) {
    char limit[24];
    format(limit, sizeof limit, "%lld", static_cast<long long>(most));
    fail_usage({option, " wants a whole number from 0 to ", limit, ", not '", text, "'."});
  }
  return number;
}

void parse_options(int argument_count, char** arguments, const ToolHelp& help,
                   std::span<const OwnOption> own_options, Options& options) {
  option known[std::size(common_options) + max_own_options + 1] = {};  // ended by an empty one
  option* const own = std::copy(std::begin(common_options), std::end(common_options), known);
  char letters[1 + 2 * max_own_options + 1] = "+";
  for (std::size_t i = 0; i < own_options.size(); ++i) {
    const OwnOption& each = own_options[i];
    const int flag = Flag::first_own + static_cast<int>(i);
    own[i] = {each.name, each.is_flag ? no_argument : required_argument, nullptr, flag};
    if (each.letter == '\0') continue;
    char* const end = letters + std::strlen(letters);
    end[0] = each.letter;
    if (!each.is_flag) end[1] = ':';
  }
  // "+": the first word that is no option begins the command, so the command's own options are
  // never taken for ours.
  int flag = 0;
  while ((flag = getopt_long(argument_count, arguments, letters, known, nullptr)) != -1) {
    if (flag == Flag::help) print_help(help);
    for (std::size_t i = 0; i < own_options.size(); ++i) {
      if (flag == own_options[i].letter && flag != 0) flag = Flag::first_own + static_cast<int>(i);
    }
    if (flag >= Flag::first_own) {
      own_options[static_cast<std::size_t>(flag - Flag::first_own)].apply(optarg);
    } else {
      apply(options, flag, optarg);
    }
  }
  if (optind >= argument_count) fail_usage({"no command to run; write it after '--'."});
  options.command = arguments + optind;
}

}  // namespace ts
