// trace: looks into traces, and makes what others need out of them.
//
// Why it exists: one program knows the format, so that Python and the replayer need not. What it
// refuses to do: record or replay, and to change a trace.
#include <cstdio>
#include <cstring>
#include <exception>

#include "trace/arguments.h"
#include "trace/commands.h"
#include "trace/format/error.h"

namespace ts::trace {
namespace {

struct Command {
  const char* name;
  int (*run)(Arguments);
  const char* summary;
};

// The sub-commands. A further one is a folder, a declaration in commands.h, and a line here.
constexpr Command commands[] = {
    {"print", print_events, "one line for each event"},
    {"info", print_info, "the images, and what they did in all"},
    {"check", check, "whether the file is whole; if not, what is lost"},
    {"analyze", analyze, "what a program did with its memory"},
    {"plan", plan_image, "what `replay` needs to make the same calls again"},
};

constexpr int exit_failed = 1;  // also: what was asked for is there, but the trace is damaged
constexpr int exit_usage = 2;

void print_help(std::FILE* to) {
  std::fputs("usage: trace COMMAND [options] FILE\n\n", to);
  for (const Command& command : commands) {
    std::fprintf(to, "  %-10s%s\n", command.name, command.summary);
  }
  std::fputs("\n  trace COMMAND --help lists the options.\n", to);
}

int run(Arguments arguments) {
  const char* const name = arguments.empty() ? "" : arguments[0];
  if (std::strcmp(name, "--help") == 0) {
    print_help(stdout);
    return 0;
  }
  for (const Command& command : commands) {
    if (std::strcmp(name, command.name) == 0) return command.run(arguments.subspan(1));
  }
  if (*name != '\0') std::fprintf(stderr, "trace: there is no command '%s'.\n", name);
  print_help(stderr);
  return exit_usage;
}

}  // namespace
}  // namespace ts::trace

int main(int argument_count, char** arguments) {
  using namespace ts::trace;
  try {
    return run(
        {arguments + 1, static_cast<std::size_t>(argument_count > 0 ? argument_count - 1 : 0)});
  } catch (const UsageError& error) {
    std::fprintf(stderr, "trace: %s\n", error.what());
    return exit_usage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trace: %s\n", error.what());
    return exit_failed;
  }
}
