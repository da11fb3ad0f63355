// Where the parts of an installation are, by the place of this program; and programs that run under
// an allocator.
#pragma once

#include <climits>

namespace ts {

inline constexpr char how_to_get_lab[] =
    "install its package, tsmalloc-lab_*.deb, or the wheel tsmalloc-*.whl";

struct Path {
  char text[PATH_MAX];
};

// `arguments` are those of this program, ended by null.

// Becomes the lab, or returns if it is not there.
void start_lab(char** arguments);

// `run` and `lib` have options in the lab only.
void leave_option_to_lab(char** arguments);

// The library of an allocator. What has none here may be one that the lab knows, and is its matter.
Path find_library(const char* name, char** arguments);

// Becomes the command, under the allocator of this name.
[[noreturn]] void run_under(const char* name, char** command, char** arguments = nullptr);

// Whether the command's program takes another user's or group's rights at its start. Ends this process if
// there is no such program.
bool takes_rights(const char* command);

// The verb `run`.
[[noreturn]] void run(char** arguments);

}  // namespace ts
