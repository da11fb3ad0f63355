// The sub-commands of `trace`: each takes the arguments after its name and returns the exit status.
// They may throw trace::Error, or UsageError (arguments.h).
#pragma once

#include <span>

namespace ts::trace {

using Arguments = std::span<char* const>;

int print_events(Arguments arguments);  // print/
int print_info(Arguments arguments);    // info/
int check(Arguments arguments);         // check/

}  // namespace ts::trace
