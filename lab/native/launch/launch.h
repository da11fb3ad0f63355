// Starts the program, and begins and ends the line of JSON about it.
//
// The time of exec must be known exactly, and every failure before it must be reported as a named
// error. How a program failed to start and how it ended is reported the same way by every tool.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common/json_line.h"
#include "launch/options.h"
#include "launch/tree_end.h"

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

// What the child reports through a close-on-exec pipe: once just before exec, and again if
// something failed. The end of the pipe without an error means that exec succeeded.
struct ChildReport {
  Nanoseconds exec_ns;
  int error_number;
  bool is_in_folder;  // or else entering it is what failed
  bool file_exists;   // although exec says not: then something that the file needs is missing
};

inline void fail_child(StartedChild& child, int error_number, const char* action,
                       const char* object) {
  child.error_number = error_number;
  format(child.message, sizeof child.message, "%s %s: %s", action, object,
         strerrordesc_np(error_number));
}

inline void send_report(int pipe_end, const ChildReport& report) {
  // Smaller than PIPE_BUF, so it is written whole or not at all; if not at all, the launcher is
  // gone.
  if (write(pipe_end, &report, sizeof report) < 0) _exit(exit_internal);
}

inline void edit_environment(const Options& options) {
  for (std::size_t i = 0; i < options.environment_edit_count; ++i) {
    const EnvironmentEdit& edit = options.environment_edits[i];
    if (edit.is_unset) {
      unsetenv(edit.assignment);
    } else {
      putenv(const_cast<char*>(edit.assignment));  // keeps the pointer, never writes through it
    }
  }
  for (std::size_t i = options.preload_count; i > 0; --i) {
    const char* const behind = getenv("LD_PRELOAD");
    const bool is_alone = behind == nullptr || *behind == '\0';
    char* joined = nullptr;
    // Without memory for it, the preload check reports that they are not mapped.
    if (asprintf(&joined, "%s%s%s", options.preloads[i - 1].path, is_alone ? "" : ":",
                 is_alone ? "" : behind) < 0) {
      return;
    }
    setenv("LD_PRELOAD", joined, 1);
    std::free(joined);
  }
}

[[noreturn]] inline void stop_with(ChildReport& report, int error_number, int pipe_end) {
  report.error_number = error_number;
  send_report(pipe_end, report);
  _exit(exit_internal);
}

[[noreturn]] inline void become_command(const Options& options, const ChildSetup& setup,
                                        int pipe_end, pid_t launcher) {
  ChildReport report{};
  // A session of its own: there is one process group to end, reading from the terminal does not
  // stop the program, and Ctrl-C cannot reach it past the launcher.
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // so that nothing runs on unmeasured without its launcher
  if (getppid() != launcher) _exit(exit_internal);
  for (int target = 0; target < 3; ++target) {
    if (setup.standard_descriptors[target] >= 0) dup2(setup.standard_descriptors[target], target);
  }
  if (options.working_directory != nullptr && chdir(options.working_directory) != 0) {
    stop_with(report, errno, pipe_end);
  }
  report.is_in_folder = true;
  edit_environment(options);
  sigprocmask(SIG_SETMASK, &setup.original_signal_mask, nullptr);
  report.exec_ns = now_ns();
  send_report(pipe_end, report);
  execvp(options.command[0], options.command);
  const int error_number = errno;
  report.file_exists =
      std::strchr(options.command[0], '/') != nullptr && access(options.command[0], F_OK) == 0;
  stop_with(report, error_number, pipe_end);
}

inline void describe_failure(StartedChild& child, const ChildReport& report,
                             const Options& options) {
  const char* const command = options.command[0];
  if (!report.is_in_folder) {
    fail_child(child, report.error_number, "enter", options.working_directory);
  } else if (report.error_number == ENOENT && report.file_exists) {
    child.error_number = ENOENT;
    format(child.message, sizeof child.message,
           "execute %s: its interpreter or dynamic loader does not exist", command);
  } else {
    fail_child(child, report.error_number, "execute", command);
  }
}

// Opened by the launcher, so that nothing between fork and exec can wait for a FIFO or for a
// person. On failure sets the error of `child` and returns false.
inline bool open_redirections(const Options& options, ChildSetup& setup, StartedChild& child) {
  constexpr int write_flags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
  const struct {
    const char* path;
    int flags;
  } wanted[3] = {{options.standard_input, O_RDONLY | O_CLOEXEC},
                 {options.standard_output, write_flags},
                 {options.standard_error, write_flags}};
  for (int target = 0; target < 3; ++target) {
    if (wanted[target].path == nullptr) continue;
    setup.standard_descriptors[target] = open(wanted[target].path, wanted[target].flags, 0666);
    if (setup.standard_descriptors[target] < 0) {
      fail_child(child, errno, "open", wanted[target].path);
      return false;
    }
  }
  return true;
}

inline void start_child(const Options& options, const ChildSetup& setup, StartedChild& child) {
  int report_ends[2];
  if (pipe2(report_ends, O_CLOEXEC) != 0) fail_internal("cannot create a pipe", errno);
  const pid_t launcher = getpid();
  child.pid = fork();
  if (child.pid < 0) fail_internal("cannot fork", errno);
  if (child.pid == 0) become_command(options, setup, report_ends[1], launcher);
  close(report_ends[1]);
  ChildReport report{};
  bool is_reported = false;
  while (read(report_ends[0], &report, sizeof report) == static_cast<ssize_t>(sizeof report)) {
    is_reported = true;
  }
  close(report_ends[0]);
  child.exec_ns = report.exec_ns;
  if (!is_reported) {  // killed from outside before it could report
    report.error_number = ECHILD;
    report.is_in_folder = true;
  }
  if (report.error_number == 0) return;
  describe_failure(child, report, options);
  waitpid(child.pid, nullptr, 0);
}

// Runs the command; if that fails, `child` says why. All that it starts stays among our
// descendants.
inline void launch(const Options& options, StartedChild& child) {
  ChildSetup setup;
  const bool is_ready =
      open_redirections(options, setup, child);  // may wait for a FIFO, so Ctrl-C must still work
  setup.original_signal_mask = block_awaited_signals();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    fail_internal("cannot become a child subreaper", errno);
  }
  if (is_ready) start_child(options, setup, child);
}

// --- the line of JSON ---

// If we were started without standard streams, files that we open would take their numbers and leak
// into the child.
inline void fill_standard_descriptors() {
  int descriptor = 0;
  do {
    descriptor = open("/dev/null", O_RDWR);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor > STDERR_FILENO) close(descriptor);
}

// Opens --output's file, or standard output. Exits if it cannot be written.
inline int open_output(const Options& options) {
  if (options.output == nullptr) return STDOUT_FILENO;
  const int descriptor = open(options.output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor >= 0) return descriptor;
  dprintf(STDERR_FILENO, "%s: cannot write %s: %s.\n  Name another file with --output.\n",
          tool_name(), options.output, strerrordesc_np(errno));
  _exit(exit_usage);
}

// Begins the line with "schema", "spawn_error", "timeout_ns", "exit_code", "signal", "timed_out",
// "interrupted" and "left_behind".
inline void begin_report(JsonLine& line, const char* schema, const Options& options,
                         const StartedChild& child, const TreeEnd& end) {
  line.begin_object();
  line.add_text("schema", schema);
  if (child.error_number == 0) {
    line.add_null("spawn_error");
  } else {
    line.begin_object("spawn_error");
    line.add("errno", child.error_number);
    line.add_text("message", child.message);
    line.end_object();
  }
  line.add_if(options.timeout_ns != 0, "timeout_ns", options.timeout_ns);
  const int status = end.wait_status();
  line.add_if(end.root_ended() && WIFEXITED(status), "exit_code", WEXITSTATUS(status));
  line.add_if(end.root_ended() && WIFSIGNALED(status), "signal", WTERMSIG(status));
  line.add_bool("timed_out", end.timed_out());
  line.add_bool("interrupted", end.interrupted());
  line.add("left_behind", end.left_behind());
}

// Ends it; exits if it could not be written.
inline void finish_report(JsonLine& line) {
  line.end_object();
  // If the reader has gone, writing must fail, not kill us.
  static_cast<void>(signal(SIGPIPE, SIG_IGN));
  if (const int error_number = line.finish(); error_number != 0) {
    fail_internal("cannot write the report", error_number);
  }
}

}  // namespace ts
