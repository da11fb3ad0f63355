// The line of JSON that a launcher writes: where it goes, and what every one of them says.
//
// Why it exists: how a program failed to start and how it ended is told in the same words by every
// tool. What it refuses to do: hold anything back. A report that cannot be written is a failure of
// the tool, with a message.
#pragma once

#include "common/json_line.h"
#include "launch/child.h"
#include "launch/options.h"
#include "launch/tree_end.h"

namespace ts {

// If we were started without standard streams, the files that we open would take their numbers and
// leak into the child.
void fill_standard_descriptors();

// Where --output says, or standard output. Does not return when it cannot be written.
int open_output(const Options& options);

// Begins the line with "schema", "spawn_error", "timeout_ns", "exit_code", "signal", "timed_out",
// "interrupted" and "left_behind".
void begin_report(JsonLine& line, const char* schema, const Options& options,
                  const StartedChild& child, const TreeEnd& end);

// Ends it; does not return when it could not be written.
void finish_report(JsonLine& line);

}  // namespace ts
