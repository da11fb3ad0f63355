// Where the parts of an installation are, relative to this program; and running programs under an
// allocator.
#pragma once

#include <climits>

namespace ts {

inline constexpr char how_to_get_lab[] =
    "install its package, tsmalloc-lab_*.deb, or the wheel tsmalloc-*.whl";

struct Path {
  char text[PATH_MAX];
};

// `arguments` are this program's, null-terminated.

// Executes the lab, or returns if it is not installed.
void start_lab(char** arguments);

// `run` and `lib` take options only in the lab.
void leave_option_to_lab(char** arguments);

// The library of an allocator. Names without a library here may be known to the lab, which then
// takes over.
Path find_library(const char* name, char** arguments);

// Executes the command under the named allocator.
[[noreturn]] void run_under(const char* name, char** command, char** arguments = nullptr);

// Whether the command's program gains another user's or group's privileges at its start. Ends this
// process if there is no such program.
bool is_privileged(const char* command);

// The verb `run`.
[[noreturn]] void run(char** arguments);

}  // namespace ts
