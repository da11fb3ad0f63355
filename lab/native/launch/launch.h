// Starts the program, ends its processes, and begins and ends the line of JSON about it.
//
// The time of exec must be known exactly, and every failure before it must be reported as a named
// error. How a program failed to start and how it ended is reported the same way by every tool.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <span>

#include "common/json_line.h"
#include "common/system.h"
#include "launch/options.h"

namespace ts {

// --- the process tree, and how a run ends: by itself, by its time limit, or by a signal to us ---
//
// Every tool that runs a program must end its whole process tree, in the same order and with the
// same patience. This class neither waits nor reaps: its owner waits until its deadline and reports
// what happened. No wait is unbounded once the root has ended or its time is up, since remaining
// processes are killed.

inline constexpr Nanoseconds never_ns = INT64_MAX;
inline constexpr Nanoseconds linger_ns = 1 * ns_per_second;  // for what the root left running
inline constexpr Nanoseconds terminate_grace_ns = 2 * ns_per_second;  // between SIGTERM and SIGKILL
inline constexpr Nanoseconds kill_round_ns = 10 * ns_per_ms;  // a fork may have slipped through
inline constexpr Nanoseconds kill_timeout_ns = 10 * ns_per_second;  // it is stuck in the kernel
inline constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

// A signal that is ignored from the start (nohup, a shell's background job) stays ignored.
inline bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

inline sigset_t awaited_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  for (const int signal : ending_signals) {
    if (!is_ignored(signal)) sigaddset(&signals, signal);
  }
  return signals;
}

// Blocks the signals that TreeEnd::wait waits for: SIGCHLD, and those that ask us to end. Returns
// the previous mask, which the child gets back.
inline sigset_t block_awaited_signals() {
  struct sigaction plain {};
  plain.sa_handler = SIG_DFL;  // an inherited SIG_IGN would let the kernel reap our children
  plain.sa_flags = SA_NOCLDSTOP;
  sigaction(SIGCHLD, &plain, nullptr);
  const sigset_t awaited = awaited_signals();
  sigset_t original;
  sigprocmask(SIG_BLOCK, &awaited, &original);
  return original;
}

// Until one of them arrives, or until then; 0 if none came.
inline int wait_for_signal(Nanoseconds until_ns) {
  const Nanoseconds left_ns =
      until_ns == never_ns ? 0 : std::max<Nanoseconds>(until_ns - now_ns(), 0);
  const timespec timeout{.tv_sec = left_ns / ns_per_second, .tv_nsec = left_ns % ns_per_second};
  const sigset_t awaited = awaited_signals();
  return std::max(sigtimedwait(&awaited, nullptr, until_ns == never_ns ? nullptr : &timeout), 0);
}

// The program and all live processes that it started, including those that left its process group:
// we are a child subreaper, so a process whose parent has ended becomes our own child. The listing
// is not a consistent snapshot, since the processes run meanwhile: it may miss one that is being
// born. To reach every process, a caller repeats the listing until it is empty.
class ProcessTree {
 public:
  // Exits if the kernel has no /proc/PID/task/TID/children (CONFIG_PROC_CHILDREN).
  static void require_kernel_support() {
    char path[64];
    format(path, sizeof path, "/proc/self/task/%d/children", getpid());
    if (access(path, R_OK) != 0)
      fail_internal("/proc/PID/task/TID/children, by which processes are found", errno);
  }

  // Lists the descendants of this process, parents before children, including zombies.
  void refresh() {
    count_ = 0;
    append_children("/proc/self/task");
    for (std::size_t parent = 0; parent < count_; ++parent) {
      char path[64];
      format(path, sizeof path, "/proc/%d/task", processes_[parent]);
      append_children(path);
    }
  }

  std::span<const pid_t> processes() const { return {processes_, count_}; }

  void signal_all(int signal) const {
    for (const pid_t process : processes()) kill(process, signal);
  }

 private:
  void append_children(const char* task_directory) {
    DIR* const tasks = opendir(task_directory);
    if (tasks == nullptr) return;  // it has ended since it was listed
    while (const dirent* task = readdir(tasks)) {
      if (task->d_name[0] == '.') continue;
      char path[PATH_MAX];
      format(path, sizeof path, "%s/%s/children", task_directory, task->d_name);
      PieceReader children{path};
      while (const char* child = children.next(' ')) {
        if (count_ < max_processes)
          processes_[count_++] = std::atoi(child);  // NOLINT: the kernel prints numbers
      }
    }
    closedir(tasks);
  }

  static constexpr std::size_t max_processes =
      4096;  // beyond, sums are too low, and ending them all takes more rounds
  std::size_t count_ = 0;
  pid_t processes_[max_processes];
};

class TreeEnd {
 public:
  // timeout_ns 0: no limit.
  TreeEnd(Nanoseconds timeout_ns, Nanoseconds start_ns)
      : deadline_ns_{timeout_ns == 0 ? never_ns : start_ns + timeout_ns}, start_ns_{start_ns} {}

  // A process's, not a thread's.
  void note_end(bool is_root, int wait_status) {
    const bool is_killed = WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGKILL;
    if (!is_root) {
      if (is_counting_left_behind_ && is_killed) ++left_behind_;
      return;
    }
    root_ended_ = true;
    root_end_ns_ = now_ns();
    wait_status_ = wait_status;
    if (phase_ != Phase::running) return;
    phase_ = Phase::lingering;
    deadline_ns_ = root_end_ns_ + linger_ns;
  }

  void pass_deadline_if_due() {
    if (now_ns() < deadline_ns_) return;
    if (phase_ == Phase::running) {
      timed_out_ = true;
      terminate();
    } else {
      kill_all();
    }
  }

  // Until a time of now_ns(), the deadline, or a signal; obeys a signal that asks us to end.
  void wait(Nanoseconds until_ns) {
    const int signal = wait_for_signal(std::min(until_ns, deadline_ns_));
    if (signal != 0 && signal != SIGCHLD) interrupt();
  }

  // True once even SIGKILL has not ended everything, which it reports on standard error.
  bool gives_up() const {
    if (now_ns() < give_up_ns_) return false;
    dprintf(STDERR_FILENO,
            "%s: some processes survived SIGKILL and are left running (uninterruptible sleep?).\n",
            tool_name());
    return true;
  }

  ProcessTree& tree() { return tree_; }
  bool root_ended() const { return root_ended_; }  // false if even SIGKILL could not end it in time
  int wait_status() const { return wait_status_; }  // from waitpid

  // From the start until the root's end.
  Nanoseconds wall_ns() const { return (root_ended_ ? root_end_ns_ : now_ns()) - start_ns_; }

  bool timed_out() const { return timed_out_; }
  bool interrupted() const { return interrupted_; }
  // Processes that outlived the root and had to be killed.
  std::int64_t left_behind() const { return left_behind_; }

 private:
  enum class Phase {
    running,      // deadline: the timeout
    lingering,    // the root has ended, others have not; deadline: the end of our patience
    terminating,  // SIGTERM was sent; deadline: SIGKILL
    killing       // SIGKILL is sent repeatedly; deadline: the next round
  };

  void interrupt() {
    interrupted_ = true;
    if (phase_ == Phase::running || phase_ == Phase::lingering) {
      terminate();
    } else {
      kill_all();  // asked for twice
    }
  }

  void terminate() {
    phase_ = Phase::terminating;
    deadline_ns_ = now_ns() + terminate_grace_ns;
    tree_.refresh();
    tree_.signal_all(SIGTERM);
    tree_.signal_all(SIGCONT);  // a stopped process would not notice
  }

  void kill_all() {
    if (phase_ != Phase::killing) {
      phase_ = Phase::killing;
      give_up_ns_ = now_ns() + kill_timeout_ns;
      is_counting_left_behind_ = root_ended_;
    }
    deadline_ns_ = now_ns() + kill_round_ns;
    tree_.refresh();
    tree_.signal_all(SIGKILL);
  }

  ProcessTree tree_;
  Phase phase_ = Phase::running;
  Nanoseconds deadline_ns_;
  Nanoseconds give_up_ns_ = never_ns;
  Nanoseconds start_ns_;
  Nanoseconds root_end_ns_ = 0;
  bool root_ended_ = false;
  int wait_status_ = 0;
  bool timed_out_ = false;
  bool interrupted_ = false;
  bool is_counting_left_behind_ = false;
  std::int64_t left_behind_ = 0;
};

// --- the start ---

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
