// The sub-commands of `trace`: each takes the arguments after its name and returns the exit
// status. They may throw trace::Error, or UsageError (arguments.h); trace.cpp tells the user.
// Each has a file of its name, or a folder.
#pragma once

#include <span>

namespace ts::trace {

using Arguments = std::span<char* const>;

int print_events(Arguments arguments);
int print_info(Arguments arguments);
int check(Arguments arguments);
int analyze(Arguments arguments);
int plan_image(Arguments arguments);

}  // namespace ts::trace
