// `set`: changes the options of a running process.
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "inspect/command_line.h"
#include "inspect/remote_options.h"
#include "inspect/verbs.h"
#include "os/options.h"

namespace ts {
namespace {

constexpr char help_of_set[] =
    R"(Usage: tsmalloc set PID [NAME=VALUE...]

Change options of tsmalloc in a running process, or print them. NAME is the name of the environment
variable, with or without TSMALLOC_. All of them are changed, or none. The process is stopped meanwhile,
usually for less than a millisecond; the change takes effect when a thread next refills a cache bin.

Examples:
  tsmalloc set 4711
  tsmalloc set 4711 LIMIT=2G BACKGROUND=on

Needs permission to ptrace the process. Exit status: 1 usage error, or the answer cannot be written; 2 the
process cannot be changed: no such process, no tsmalloc in it, another version of it, nothing allocated
yet, permission denied, or a thread that stays in the kernel.
)";

// The name in an assignment, without the prefix.
struct Name {
  char text[32];
};

Name name_of(const char* assignment) {
  Name name;
  constexpr char prefix[] = "TSMALLOC_";
  if (std::strncmp(assignment, prefix, sizeof prefix - 1) == 0) assignment += sizeof prefix - 1;
  format(name.text, sizeof name.text, "%.*s", static_cast<int>(std::strcspn(assignment, "=")),
         assignment);
  return name;
}

int print_option(const char* name) {
  char value[64] = "";
  write_option(name, value, sizeof value);
  return std::printf("TSMALLOC_%s=%s\n", name, value) < 0 ? errno : 0;
}

int print_all() {
  for (std::size_t i = 0; const char* const name = option_name(i); ++i) {
    if (const int error = print_option(name); error != 0) return error;
  }
  return std::fflush(stdout) == 0 ? 0 : errno;
}

// Changes this process's options, which are copies of the other's.
void change(const CommandLine& line, const char* assignment) {
  const char* const equals = std::strchr(assignment, '=');
  if (equals == nullptr) line.fail_at(assignment, "not NAME=VALUE");
  const Name name = name_of(assignment);
  switch (change_option(name.text, equals + 1)) {
    case 0:
      return;
    case ENOENT:
      line.fail_at(assignment, "unknown option; tsmalloc set PID lists them");
    case EPERM:
      line.fail_at(assignment, "can only be set when a process starts");
    default: {
      char values[128] = "";
      write_option_values(name.text, values, sizeof values);
      char reason[192];
      const bool is_limit = std::strstr(name.text, "LIMIT") != nullptr;
      format(reason, sizeof reason, "expected one of %s%s", values,
             is_limit ? "; LIMIT must not be above HARD_LIMIT" : "");
      line.fail_at(assignment, reason);
    }
  }
}

// An assignment that only another one permits, such as LIMIT above the former HARD_LIMIT, succeeds
// in the second round, whatever their order.
void try_all(const CommandLine& line) {
  for (const char* const assignment : line.words()) {
    if (const char* const equals = std::strchr(assignment, '='))
      change_option(name_of(assignment).text, equals + 1);
  }
}

}  // namespace

int set_options(char** arguments) {
  CommandLine line{"set", help_of_set, arguments, CommandLine::Operands::process_and_words};
  while (const char* const option = line.next_option()) line.fail_at_option(option);
  Process process{line.pid()};
  EngineImage image;
  open_engine(process, Process::Residency::none, image);
  RemoteOptions options{process, image};
  if (line.words().is_empty()) {
    expect_written(print_all());
    return 0;
  }
  try_all(line);
  for (const char* const assignment : line.words()) change(line, assignment);
  options.write();
  for (const char* const assignment : line.words())
    expect_written(print_option(name_of(assignment).text));
  expect_written(std::fflush(stdout) == 0 ? 0 : errno);
  return 0;
}

}  // namespace ts
