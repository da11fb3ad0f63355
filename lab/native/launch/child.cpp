// fork, the child's last steps, exec; see child.h.
#include "launch/child.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace ts {
namespace {

// What the child reports through a close-on-exec pipe: once just before exec, and again if
// something failed. The end of the pipe without an error means that exec succeeded.
struct ChildReport {
  Nanoseconds exec_ns;
  int error_number;
  bool is_in_folder;  // or else entering it is what failed
  bool file_exists;   // although exec says not: then something that the file needs is missing
};

void fail(StartedChild& child, int error_number, const char* action, const char* object) {
  child.error_number = error_number;
  format(child.message, sizeof child.message, "%s %s: %s", action, object,
         strerrordesc_np(error_number));
}

void send(int pipe_end, const ChildReport& report) {
  // Smaller than PIPE_BUF, so it is written whole or not at all; if not at all, the launcher is
  // gone.
  if (write(pipe_end, &report, sizeof report) < 0) _exit(exit_internal);
}

void edit_environment(const Options& options) {
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

[[noreturn]] void stop_with(ChildReport& report, int error_number, int pipe_end) {
  report.error_number = error_number;
  send(pipe_end, report);
  _exit(exit_internal);
}

[[noreturn]] void become_command(const Options& options, const ChildSetup& setup, int pipe_end,
                                 pid_t launcher) {
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
  send(pipe_end, report);
  execvp(options.command[0], options.command);
  const int error_number = errno;
  report.file_exists =
      std::strchr(options.command[0], '/') != nullptr && access(options.command[0], F_OK) == 0;
  stop_with(report, error_number, pipe_end);
}

void describe_failure(StartedChild& child, const ChildReport& report, const Options& options) {
  const char* const command = options.command[0];
  if (!report.is_in_folder) {
    fail(child, report.error_number, "enter", options.working_directory);
  } else if (report.error_number == ENOENT && report.file_exists) {
    child.error_number = ENOENT;
    format(child.message, sizeof child.message,
           "execute %s: its interpreter or dynamic loader does not exist", command);
  } else {
    fail(child, report.error_number, "execute", command);
  }
}

}  // namespace

bool open_redirections(const Options& options, ChildSetup& setup, StartedChild& child) {
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
      fail(child, errno, "open", wanted[target].path);
      return false;
    }
  }
  return true;
}

void start_child(const Options& options, const ChildSetup& setup, StartedChild& child) {
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

}  // namespace ts
