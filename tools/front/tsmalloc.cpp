// tsmalloc: the command of an installation. It runs programs under an allocator, prints where the
// libraries are, inspects and controls processes, and starts the lab for every other verb. It is
// one static file that needs no Python and finds the libraries relative to itself, so that a prefix
// can be moved.
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "front/fail.h"
#include "front/run.h"
#include "inspect/verbs.h"

namespace ts {

// The attribute makes the compiler check every call, which no function template could have.
// NOLINTNEXTLINE(cert-dcl50-cpp)
void fail(int status, const char* pattern, ...) {
  char line[2 * PATH_MAX];
  va_list arguments;
  va_start(arguments, pattern);
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): it is initialised, in the line above
  const int length = std::vsnprintf(line, sizeof line, pattern, arguments);
  va_end(arguments);
  dprintf(STDERR_FILENO, "tsmalloc: %s\n", length >= 0 ? line : pattern);
  _exit(status);
}

const char* tool_name() { return "tsmalloc"; }

namespace {

constexpr char help[] =
    R"(Usage: tsmalloc run [NAME] -- PROGRAM [ARGUMENT...]
       tsmalloc lib [NAME]
       tsmalloc explain [--map] PID...
       tsmalloc stats PID...
       tsmalloc top PID... | -- PROGRAM [ARGUMENT...]
       tsmalloc purge PID...
       tsmalloc set PID [NAME=VALUE...]
       tsmalloc profile PID... | -- PROGRAM [ARGUMENT...]
       tsmalloc --version | --help
       tsmalloc VERB ...

  run   Run PROGRAM under the allocator NAME. PROGRAM replaces this command.
  lib   Print the path of an allocator's library: LD_PRELOAD=$(tsmalloc lib) PROGRAM
  explain
        Show where the resident memory of a running process is.
  stats Print the statistics of its allocator: address space by use, and counts.
  top   Show where its resident memory is, updated continuously.
  purge Return its free pages to the operating system.
  set   Change its options, or print them.
  profile
        Take a heap profile: which lines of the program hold the memory.
        Instead of PID, --tree PID means a process and its descendants, and --cgroup PATH all
        processes of a cgroup.
  VERB  All other verbs belong to the lab, which compares allocators:
        %s

NAME is tsmalloc (the engine, and the default), secure (the hardened heap), or one of the lab's
teaching heaps, such as lock-best.

Examples:
  tsmalloc run -- ./server --port 8080
  tsmalloc explain $(pidof server)

Exit status: 1 usage error; 2 a part of tsmalloc is missing. `run` exits with the status of PROGRAM,
126 if it cannot be executed, 127 if it is not found.
)";

int print(const char* text) {
  if (dprintf(STDOUT_FILENO, "%s\n", text) < 0) {
    fail(exit_usage, "cannot write the output: %s", strerrordesc_np(errno));
  }
  return 0;
}

bool asks_for_help(const char* word) {
  return std::strcmp(word, "--help") == 0 || std::strcmp(word, "-h") == 0;
}

int print_help() { return dprintf(STDOUT_FILENO, help, how_to_get_lab) < 0 ? exit_usage : 0; }

int print_library(char** arguments) {
  const char* const name = arguments[2] != nullptr ? arguments[2] : "tsmalloc";
  leave_option_to_lab(arguments);
  if (arguments[2] != nullptr && arguments[3] != nullptr) {
    fail(exit_usage, "too many arguments: tsmalloc lib [NAME]");
  }
  return print(find_library(name, arguments).text);
}

}  // namespace
}  // namespace ts

int main(int, char** arguments) {
  using namespace ts;
  const char* const verb = arguments[0] != nullptr ? arguments[1] : nullptr;
  const auto is = [verb](const char* word) { return std::strcmp(verb, word) == 0; };
  if (verb == nullptr) {
    if (arguments[0] != nullptr) start_lab(arguments);
    dprintf(STDERR_FILENO, help, how_to_get_lab);
    return exit_usage;
  }
  if ((is("run") || is("lib")) && arguments[2] != nullptr && asks_for_help(arguments[2])) {
    start_lab(arguments);
    return print_help();
  }
  if (is("run")) run(arguments);
  if (is("lib")) return print_library(arguments);
  if (is("explain")) return explain(arguments + 2);
  if (is("stats")) return stats(arguments + 2);
  if (is("top")) return top(arguments + 2);
  if (is("purge")) return purge(arguments + 2);
  if (is("set")) return set_options(arguments + 2);
  if (is("profile")) return profile(arguments);
  if (is("--version") || is("-V")) return print("tsmalloc, version " TSMALLOC_VERSION_TEXT);
  start_lab(arguments);
  if (asks_for_help(verb)) return print_help();
  if (*verb == '-') fail(exit_usage, "unknown option %s; see tsmalloc --help", verb);
  fail(exit_missing, "unknown command %s; if it is one of the lab's, the lab is not installed: %s",
       verb, how_to_get_lab);
}
