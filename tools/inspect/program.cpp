// See program.h.
#include "inspect/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "front/fail.h"
#include "front/run.h"
#include "inspect/list.h"
#include "inspect/profile_image.h"
#include "inspect/stopped_threads.h"
#include "os/atomic_file.h"

namespace ts {
namespace {

constexpr long trace_options =
    PTRACE_O_TRACEEXIT | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC;
constexpr int of_signal = 128;

// Signals sent to this process are meant for the program. The terminal sends SIGINT and SIGQUIT to
// both.
constexpr int passed_on[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
constexpr int terminal_signals[] = {SIGINT, SIGQUIT};
// timeout(1) and a hang-up of the terminal also send the other signals to both, and a program may
// take a second one for impatience. So a signal is passed on after a delay, unless the program has
// received it by then.
constexpr Nanoseconds patience = 50 * ns_per_ms;

class ProfiledProgram {
 public:
  ProfiledProgram(const char* output, bool is_peak)
      : output_{output}, has_pid_{std::strstr(output, "%p") != nullptr}, is_peak_{is_peak} {}

  int run(char** command);

 private:
  // A traced thread: the first one of a process, or one that outlives it.
  struct Tracee {
    pid_t thread;
    pid_t process;
    bool has_memory_of_parent;  // between vfork and exec
    bool has_executed;
    bool is_written;  // from here
  };
  void start(char** command);
  void trace(bool may_lose_rights);
  Tracee& tracee_of(pid_t thread);
  void look_at(pid_t thread, int status);
  void go_on(const Tracee& tracee, unsigned event, int signal);
  void note_child(pid_t thread, bool has_memory_of_parent);
  void note_exec(Tracee& tracee);
  void note_signal(const Tracee& tracee, int signal);
  void rescue(Tracee& tracee);
  void trace_others(const Tracee& ended);
  bool is_written(const char* path) const;
  void take(int signal);
  void forward_due_signals();
  void warn_of_remaining_processes();

  const char* output_;
  bool has_pid_;
  bool is_peak_;
  pid_t program_ = 0;
  bool is_traced_ = false;
  bool has_warned_of_privileges_ = false;
  int status_ = -1;
  List<Tracee> tracees_;
  sigset_t awaited_{};
  sigset_t former_mask_{};
  timespec began_{};
  // When to pass a signal on, and when the program received it from others; 0: not.
  Nanoseconds due_[NSIG] = {};
  Nanoseconds delivered_[NSIG] = {};
};

void ProfiledProgram::start(char** command) {
  sigemptyset(&awaited_);
  sigaddset(&awaited_, SIGCHLD);
  const auto await = [this](int signal) {
    struct sigaction action = {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&awaited_, signal);  // nohup's stay ignored
  };
  for (const int signal : passed_on) await(signal);
  for (const int signal : terminal_signals) await(signal);
  ::sigprocmask(SIG_BLOCK, &awaited_, &former_mask_);
  struct sigaction of_child = {};
  struct sigaction former = {};
  of_child.sa_handler = SIG_DFL;
  ::sigaction(SIGCHLD, &of_child, &former);
  ::clock_gettime(CLOCK_REALTIME_COARSE, &began_);
  int gate[2];
  if (::pipe2(gate, O_CLOEXEC) != 0 || (program_ = ::fork()) < 0)
    fail(exit_missing, "cannot start a process: %s", strerrordesc_np(errno));
  if (program_ == 0) {
    ::sigaction(SIGCHLD, &former, nullptr);
    ::sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
    char byte;
    ::close(gate[1]);
    while (::read(gate[0], &byte, 1) < 0 && errno == EINTR) continue;
    run_under("tsmalloc", command);
  }
  trace(is_privileged(command[0]));
  ::close(gate[0]);
  ::close(gate[1]);  // it goes
}

// A traced program would not gain another user's privileges, and has no preloaded library.
void ProfiledProgram::trace(bool may_lose_rights) {
  if (may_lose_rights && ::geteuid() != 0) return;
  is_traced_ = ::ptrace(PTRACE_SEIZE, program_, nullptr, trace_options) == 0;
  if (is_traced_) {
    tracees_.add({program_, program_, false, true, false});
    return;
  }
  dprintf(
      STDERR_FILENO,
      "tsmalloc: cannot trace the program (%s), so its profile is lost if a signal or "
      "_exit ends it: in a container, start it with --cap-add=SYS_PTRACE; or save it earlier, with "
      "tsmalloc profile %d\n",
      strerrordesc_np(errno), program_);
}

ProfiledProgram::Tracee& ProfiledProgram::tracee_of(pid_t thread) {
  for (Tracee& each : tracees_) {
    if (each.thread == thread) return each;
  }
  return tracees_.add({thread, thread, false, false, false});
}

void ProfiledProgram::go_on(const Tracee& tracee, unsigned event, int signal) {
  const bool is_group_stop = event == PTRACE_EVENT_STOP && signal != SIGTRAP;
  const bool is_delivery = event == 0;
  ::ptrace(is_group_stop ? PTRACE_LISTEN : PTRACE_CONT, tracee.thread, nullptr,
           static_cast<long>(is_delivery ? signal : 0));
}

void ProfiledProgram::look_at(pid_t thread, int status) {
  if (thread == program_ && !WIFSTOPPED(status)) status_ = status;
  if (thread == program_ && !is_traced_) return;
  if (!WIFSTOPPED(status)) {
    for (Tracee& each : tracees_) {
      if (each.thread != thread) continue;
      tracees_.remove(each);
      return;
    }
    return;
  }
  Tracee& tracee = tracee_of(thread);
  const unsigned event = event_of(status);
  unsigned long number = 0;
  switch (event) {
    case 0:
      note_signal(tracee, WSTOPSIG(status));
      break;
    case PTRACE_EVENT_EXIT:
      rescue(tracee);
      trace_others(tracee);
      break;
    case PTRACE_EVENT_EXEC:
      note_exec(tracee);
      break;
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
      if (::ptrace(PTRACE_GETEVENTMSG, thread, nullptr, &number) == 0)
        note_child(static_cast<pid_t>(number), event == PTRACE_EVENT_VFORK);
      break;
    default:
      break;
  }
  go_on(tracee_of(thread), event, WSTOPSIG(status));
}

// It may have continued before its parent was examined.
void ProfiledProgram::note_child(pid_t thread, bool has_memory_of_parent) {
  if (::kill(thread, 0) != 0) return;
  Tracee& child = tracee_of(thread);
  child.has_memory_of_parent = has_memory_of_parent && !child.has_executed;
}

void ProfiledProgram::note_exec(Tracee& tracee) {
  tracee.has_executed = true;
  tracee.has_memory_of_parent = false;
  char path[64];
  format(path, sizeof path, "/proc/%d/exe", tracee.process);
  struct stat file = {};
  if (has_warned_of_privileges_ || ::geteuid() == 0 || ::stat(path, &file) != 0 ||
      (file.st_mode & S_ISUID) == 0 || file.st_uid == ::geteuid())
    return;
  has_warned_of_privileges_ = true;
  char program[PATH_MAX] = "";
  const ssize_t length = ::readlink(path, program, sizeof program - 1);
  program[length > 0 ? length : 0] = '\0';
  dprintf(STDERR_FILENO,
          "tsmalloc: %s is setuid or setgid, and runs without those rights while traced: "
          "profile as root, or profile only the program of interest\n",
          program);
}

void ProfiledProgram::note_signal(const Tracee& tracee, int signal) {
  siginfo_t info = {};
  if (tracee.process != program_ || signal >= NSIG ||
      ::ptrace(PTRACE_GETSIGINFO, tracee.thread, nullptr, &info) != 0)
    return;
  if (info.si_pid != ::getpid()) delivered_[signal] = now_ns();
}

// ---- the profile of an exiting process ----

bool ProfiledProgram::is_written(const char* path) const {
  struct stat file = {};
  if (::stat(path, &file) != 0) return false;
  return file.st_mtim.tv_sec > began_.tv_sec ||
         (file.st_mtim.tv_sec == began_.tv_sec && file.st_mtim.tv_nsec >= began_.tv_nsec);
}

// The name the library uses.
void name_output(const char* output, std::int64_t pid, bool has_pid, bool is_first,
                 char (&path)[2 * PATH_MAX]) {
  const char* const place = std::strstr(output, "%p");
  if (has_pid) {
    format(path, sizeof path, "%.*s%lld%s", static_cast<int>(place - output), output,
           static_cast<long long>(pid), place + 2);
  } else if (is_first) {
    format(path, sizeof path, "%s", output);
  } else {
    format(path, sizeof path, "%s.%lld", output, static_cast<long long>(pid));
  }
}

void ProfiledProgram::rescue(Tracee& tracee) {
  if (tracee.has_memory_of_parent) return;
  Process process{tracee.process};
  EngineImage image;
  const int error = process.open(Process::Residency::none);
  const EngineStatus found = error == 0 ? image.find(process) : EngineStatus::unreadable;
  if (found == EngineStatus::none || found == EngineStatus::other_version) return;
  char path[2 * PATH_MAX];
  // Its own process ID, which may differ in a container.
  name_output(output_, process.status("NSpid:"), has_pid_, tracee.process == program_, path);
  if (!tracee.is_written && is_written(path)) return;
  unsigned long status = 0;
  ::ptrace(PTRACE_GETEVENTMSG, tracee.thread, nullptr, &status);
  ProfileImage profile;
  const bool is_read = found == EngineStatus::engine && profile.read(process, image, true);
  if (!is_read && found == EngineStatus::unused && (status & 0x7f) != SIGKILL) return;
  if (!is_read) {
    dprintf(STDERR_FILENO,
            "tsmalloc: the profile of process %d (%s) is lost: its memory was gone when it was "
            "killed. Use tsmalloc profile PID while it runs, or TSMALLOC_PROFILE_AT=limit, which "
            "writes a profile "
            "when memory runs short\n",
            tracee.process, process.command());
    return;
  }
  if (profile.samples() == 0) return;
  const auto kind = is_peak_ ? engine::ProfileKind::peak : engine::ProfileKind::exit;
  const int unwritten = profile.write_to(path, process, image, kind);
  tracee.is_written = unwritten == 0;
  if (unwritten != 0)
    dprintf(STDERR_FILENO,
            "tsmalloc: cannot write the profile of process %d to %s: %s; choose another with "
            "--output FILE\n",
            tracee.process, path, os::describe_error(unwritten).text);
}

// If the first thread ends before the others, those show whether the process ends: if it does, they
// have a SIGKILL pending, or are gone.
void ProfiledProgram::trace_others(const Tracee& ended) {
  const Tracee first = ended;
  if (first.has_memory_of_parent) return;
  List<pid_t> living;
  list_living_threads(first.process, living);
  for (const pid_t thread : living) {
    if (thread == first.thread) continue;
    bool is_known = false;
    for (const Tracee& each : tracees_) is_known |= each.thread == thread;
    if (is_known || ::ptrace(PTRACE_SEIZE, thread, nullptr, trace_options) != 0) continue;
    tracees_.add({thread, first.process, false, true, first.is_written});
  }
}

// ---- signals ----

void ProfiledProgram::take(int signal) {
  for (const int each : passed_on) {
    if (signal == each && due_[each] == 0) due_[each] = now_ns() + patience;
  }
}

void ProfiledProgram::forward_due_signals() {
  for (const int signal : passed_on) {
    if (due_[signal] == 0 || now_ns() < due_[signal]) continue;
    const bool was_delivered = delivered_[signal] > due_[signal] - ns_per_second;
    if (!was_delivered && status_ < 0) ::kill(program_, signal);
    due_[signal] = 0;
  }
}

// ---- all of it ----

void ProfiledProgram::warn_of_remaining_processes() {
  for (const Tracee& each : tracees_) {
    if (each.thread != each.process) continue;
    Process process{each.process};
    EngineImage image;
    if (process.open(Process::Residency::none) != 0 || image.find(process) != EngineStatus::engine)
      continue;
    dprintf(STDERR_FILENO,
            "tsmalloc: process %d (%s) keeps running in the background, with sampling on: tsmalloc "
            "profile %d "
            "reads its profile\n",
            each.process, process.command(), each.process);
  }
}

int ProfiledProgram::run(char** command) {
  start(command);
  Nanoseconds ended_at = 0;
  constexpr Nanoseconds grace = 200 * ns_per_ms;
  for (;;) {
    int status = 0;
    pid_t thread = 0;
    while ((thread = ::waitpid(-1, &status, __WALL | WNOHANG)) > 0) look_at(thread, status);
    if (status_ >= 0 && ended_at == 0) ended_at = now_ns();
    if (status_ >= 0 && (tracees_.is_empty() || now_ns() - ended_at > grace)) break;
    forward_due_signals();
    bool is_waiting = ended_at != 0;
    for (const int signal : passed_on) is_waiting |= due_[signal] != 0;
    const timespec pause{is_waiting ? 0 : 3600, is_waiting ? 10 * ns_per_ms : 0};
    take(::sigtimedwait(&awaited_, nullptr, &pause));
  }
  warn_of_remaining_processes();
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : of_signal + WTERMSIG(status_);
}

}  // namespace

int run_profiled(char** command, const char* output, bool is_peak) {
  return ProfiledProgram{output, is_peak}.run(command);
}

}  // namespace ts
