// trace: looks into traces, and makes what others need out of them.
//
// Why it exists: one program knows the format, so that Python and the replayer need not. What it
// refuses to do: record or replay, and to change a trace.
#include <cstdio>
#include <cstring>
#include <exception>

#include "trace/arguments.h"
#include "trace/output.h"

namespace ts {

const char* tool_name() { return "trace"; }

namespace trace {
namespace {

// A further one is a folder, a declaration in arguments.h, and a word here.
constexpr const Command* commands[] = {&print_command, &info_command, &check_command,
                                       &analyze_command, &plan_command};

constexpr int exit_failed = 1;  // also: what was asked for is there, but the trace is damaged
constexpr int exit_usage = 2;

void print_help(std::FILE* to) {
  std::fputs("usage: trace COMMAND [options] FILE\n\n", to);
  for (const Command* const command : commands) {
    std::fprintf(to, "  %-10s%s\n", command->name, command->summary);
  }
  std::fputs("\n  trace COMMAND --help lists the options.\n", to);
}

int run(Arguments arguments) {
  const char* const name = arguments.empty() ? "" : arguments[0];
  if (std::strcmp(name, "--help") == 0) {
    print_help(stdout);
    return 0;
  }
  for (const Command* const command : commands) {
    if (std::strcmp(name, command->name) != 0) continue;
    const Parsed parsed{*command, arguments.subspan(1)};
    if (!parsed.has("--help")) return command->run(parsed);
    Output out;
    out << command->help;
    out.finish();
    return 0;
  }
  if (*name != '\0') std::fprintf(stderr, "trace: there is no command '%s'.\n", name);
  print_help(stderr);
  return exit_usage;
}

}  // namespace
}  // namespace trace
}  // namespace ts

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
