// Starting the program.
//
// Why it exists: the moment of exec must be known exactly, and every way to fail before it must
// come back as a named error. What it refuses to do: block. Redirections are opened by the launcher
// beforehand, so that nothing between fork and exec can wait for a FIFO or for a person.
//
// A launcher that has to do something with the child before it may go on (trace it) sets
// `last_step`, and calls fork_child, release_child and conclude_start instead of start_child.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "launch/options.h"

namespace ts {

// What the child becomes: descriptors are -1 where it inherits ours.
struct ChildSetup {
  int standard_descriptors[3] = {-1, -1, -1};
  int cgroup_descriptor = -1;       // writing "0" to it moves the writer into the private cgroup
  sigset_t original_signal_mask{};  // ours before we blocked what we wait for
  // The child's last act before exec, once it has been released; returns an error number, and is
  // called by `last_step_name` in the message. Null: there is none, and nothing to wait for.
  int (*last_step)() = nullptr;
  const char* last_step_name = "";
};

enum class StartStep { chdir, last_step, exec };

struct StartedChild {
  pid_t pid = -1;
  Nanoseconds exec_ns = 0;  // the clock just before exec
  bool is_in_cgroup = false;
  int error_number =
      0;  // 0: it runs. Otherwise there is no child any more, and `message` says what failed
  StartStep failed_step = StartStep::exec;  // where error_number is not 0
  char message[PATH_MAX + 128] = {};
  int report_pipe = -1;  // ends of pipes, while it is being started
  int release_pipe = -1;
};

// Opens the redirections of `options`; on failure fills the error of `child` and returns false.
bool open_redirections(const Options& options, ChildSetup& setup, StartedChild& child);

// Runs the command; where that fails, there is no child any more.
void start_child(const Options& options, const ChildSetup& setup, StartedChild& child);

// The same in steps. The child waits for its release if there is a last step; conclude_start waits
// until it has become the command or failed, and does not reap it.
void fork_child(const Options& options, const ChildSetup& setup, StartedChild& child);
void release_child(StartedChild& child);
void conclude_start(const Options& options, const ChildSetup& setup, StartedChild& child);

}  // namespace ts
