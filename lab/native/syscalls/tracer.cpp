// ptrace; see tracer.h.
#include "syscalls/tracer.h"

#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>

namespace ts {
namespace {

constexpr long trace_options = PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK |
                               PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC |
                               // Without us the watched calls would fail.
                               PTRACE_O_EXITKILL;
constexpr int syscall_stop = SIGTRAP | 0x80;  // what PTRACE_O_TRACESYSGOOD makes of it

// The only failure is that the thread has been killed meanwhile; its end will be reported.
void resume(__ptrace_request how, pid_t thread, int signal = 0) {
  ptrace(how, thread, nullptr, static_cast<long>(signal));
}

bool read_call(pid_t thread, __ptrace_syscall_info& info) {
  const long size = ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info);
  if (size < 0 && errno == EIO) fail_internal("this needs Linux 5.3 or later", errno);
  return size > 0;  // otherwise it has been killed
}

struct Relations {
  pid_t process = 0;  // its thread group's leader
  pid_t parent = 0;   // that of its process
};

Relations relations_of(pid_t thread) {
  char path[64];
  format(path, sizeof path, "/proc/%d/status", thread);
  Relations relations;
  PieceReader status{path};
  while (const char* line = status.next('\n')) {
    if (const auto number = number_after(line, "Tgid:"); number >= 0) {
      relations.process = static_cast<pid_t>(number);
    }
    if (const auto number = number_after(line, "PPid:"); number >= 0) {
      relations.parent = static_cast<pid_t>(number);
      break;  // the kernel prints it later
    }
  }
  return relations;
}

bool is_group_stop(int signal) {
  return signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU;
}

}  // namespace

int Tracer::run() {
  fork_child(options_, setup_, child_);
  if (ptrace(PTRACE_SEIZE, child_.pid, nullptr, trace_options) != 0) {
    const int error_number = errno;
    kill(child_.pid, SIGKILL);
    conclude_start_once();
    waitpid(child_.pid, nullptr, 0);
    // One that has ended already cannot be traced; why it ended is what failed.
    const bool ended_before = child_.error_number != 0 && child_.failed_step == StartStep::chdir;
    return ended_before ? 0 : error_number;
  }
  note_new(child_.pid);
  release_child(child_);
  for (Stops stops = handle_stops(); stops != Stops::over; stops = handle_stops()) {
    if (end_.gives_up()) break;
    end_.pass_deadline_if_due();
    end_.wait(stops == Stops::more ? now_ns() : never_ns);
  }
  conclude_start_once();
  return 0;
}

Tracer::Stops Tracer::handle_stops() {
  // A busy program always has another stop for us, and the clock would not be looked at.
  constexpr int most_at_once = 1000;
  int status = 0;
  for (int i = 0; i < most_at_once; ++i) {
    const pid_t thread = waitpid(-1, &status, __WALL | WNOHANG);
    if (thread == 0) return Stops::none;
    if (thread < 0) return Stops::over;  // ECHILD
    WIFSTOPPED(status) ? handle_stop(thread, status) : handle_end(thread, status);
  }
  return Stops::more;
}

void Tracer::handle_end(pid_t thread, int status) {
  const Tracee* const tracee = tracees_.find(thread);
  const bool is_process = tracee == nullptr || tracee->process == thread;
  tracees_.remove(thread);
  if (thread == child_.pid) {
    conclude_start_once();
    if (child_.error_number == 0) end_.note_end(true, status);  // else it never was the command
  } else if (is_process) {
    end_.note_end(false, status);
  }
}

void Tracer::handle_stop(pid_t thread, int status) {
  const int signal = WSTOPSIG(status);
  const int event = status >> 16;
  if (tracees_.find(thread) == nullptr) note_new(thread);
  if (event == PTRACE_EVENT_SECCOMP) {
    handle_entry(thread);
  } else if (signal == syscall_stop) {
    handle_exit(thread);
  } else if (event == PTRACE_EVENT_STOP && is_group_stop(signal)) {
    resume(PTRACE_LISTEN, thread);  // it stays stopped, and we hear of its going on
  } else if (event == PTRACE_EVENT_EXEC) {
    handle_exec(thread);
  } else {
    resume(PTRACE_CONT, thread, event == 0 ? signal : 0);
  }
}

// A program may have a filter of its own with the same verdict; without a tracer its calls would
// fail with ENOSYS, which is what the kernel gives them where ptrace leaves the number alone and
// there is no tracer. We cannot tell it apart from a call to be made, and let it be made.
void Tracer::handle_entry(pid_t thread) {
  __ptrace_syscall_info info{};
  Tracee* const tracee = tracees_.find(thread);
  const bool is_ours = tracee != nullptr && read_call(thread, info) &&
                       info.op == PTRACE_SYSCALL_INFO_SECCOMP &&
                       info.seccomp.ret_data == filter_mark && is_running_;
  if (!is_ours) {
    resume(PTRACE_CONT, thread);
    return;
  }
  tracee->call = call_of(info.seccomp.nr);
  std::copy_n(std::begin(info.seccomp.args), std::size(tracee->arguments), tracee->arguments);
  tracee->entry_ns = now_ns();
  resume(PTRACE_SYSCALL, thread);
}

void Tracer::handle_exit(pid_t thread) {
  const Nanoseconds exit_ns = now_ns();
  __ptrace_syscall_info info{};
  Tracee* const tracee = tracees_.find(thread);
  const bool is_exit = tracee != nullptr && tracee->call != Call::count &&
                       read_call(thread, info) && info.op == PTRACE_SYSCALL_INFO_EXIT;
  if (is_exit) {
    FinishedCall finished{tracee->call, {}, info.exit.rval, exit_ns - tracee->entry_ns};
    std::copy(std::begin(tracee->arguments), std::end(tracee->arguments), finished.arguments);
    Tracee* const leader = tracees_.find(tracee->process);
    counts_.add(finished, leader != nullptr ? leader->program_break : tracee->program_break);
    tracee->call = Call::count;
  }
  resume(PTRACE_CONT, thread);
}

// The thread that calls exec takes over the number of its process's leader; all others are gone, and
// the kernel reports the end of each, but not that of the number that it had itself.
void Tracer::handle_exec(pid_t thread) {
  unsigned long former = 0;
  if (ptrace(PTRACE_GETEVENTMSG, thread, nullptr, &former) == 0 &&
      static_cast<pid_t>(former) != thread) {
    tracees_.remove(static_cast<pid_t>(former));
  }
  if (Tracee* const tracee = tracees_.find(thread); tracee != nullptr) {
    *tracee = Tracee{.thread = thread, .process = thread};
  }
  if (thread == child_.pid) {
    is_running_ = true;
    conclude_start_once();
  }
  resume(PTRACE_CONT, thread);
}

void Tracer::note_new(pid_t thread) {
  const Relations relations = relations_of(thread);
  ++threads_;
  if (relations.process == thread) ++processes_;
  Tracee* const tracee = tracees_.add(thread);
  if (tracee == nullptr) {
    ++untraced_;
    return;
  }
  tracee->process = relations.process;
  if (relations.process == thread) {  // a fork has its parent's break
    const Tracee* const parent = tracees_.find(relations.parent);
    if (parent != nullptr) tracee->program_break = parent->program_break;
  }
}

void Tracer::conclude_start_once() {
  if (is_start_concluded_) return;
  is_start_concluded_ = true;
  conclude_start(options_, setup_, child_);
}

}  // namespace ts
