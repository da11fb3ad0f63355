// Starts the program.
//
// The time of exec must be known exactly, and every failure before it must be reported as a named
// error. Redirections are opened by the launcher beforehand, so that nothing between fork and exec
// can wait for a FIFO or for a person.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "launch/options.h"

namespace ts {

// What the child becomes: descriptors are -1 where it inherits ours.
struct ChildSetup {
  int standard_descriptors[3] = {-1, -1, -1};
  sigset_t original_signal_mask{};  // ours before we blocked the signals we wait for
};

struct StartedChild {
  pid_t pid = -1;
  Nanoseconds exec_ns = 0;  // the clock just before exec
  int error_number = 0;  // 0: it runs. Otherwise the child is gone, and `message` says what failed
  char message[PATH_MAX + 128] = {};
};

// Opens the redirections of `options`; on failure sets the error of `child` and returns false.
bool open_redirections(const Options& options, ChildSetup& setup, StartedChild& child);

// Runs the command; if that fails, the child is gone.
void start_child(const Options& options, const ChildSetup& setup, StartedChild& child);

}  // namespace ts
