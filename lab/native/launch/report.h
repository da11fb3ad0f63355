// The line of JSON that a launcher writes: where it goes, and the fields that all of them share.
//
// How a program failed to start and how it ended is reported the same way by every tool. If a
// report cannot be written, the tool fails with a message.
#pragma once

#include "common/json_line.h"
#include "launch/child.h"
#include "launch/options.h"
#include "launch/tree_end.h"

namespace ts {

// If we were started without standard streams, files that we open would take their numbers and leak
// into the child.
void fill_standard_descriptors();

// Opens --output's file, or standard output. Exits if it cannot be written.
int open_output(const Options& options);

// Begins the line with "schema", "spawn_error", "timeout_ns", "exit_code", "signal", "timed_out",
// "interrupted" and "left_behind".
void begin_report(JsonLine& line, const char* schema, const Options& options,
                  const StartedChild& child, const TreeEnd& end);

// Ends it; exits if it could not be written.
void finish_report(JsonLine& line);

}  // namespace ts
