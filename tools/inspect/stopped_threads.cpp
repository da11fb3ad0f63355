// PTRACE_SEIZE and PTRACE_INTERRUPT; see stopped_threads.h.
#include "inspect/stopped_threads.h"

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "inspect/system_caller.h"

namespace ts {
namespace {

// A running thread stops within microseconds, if it has a processor; one that waits for a disk, or
// for the child of its vfork, does not. Meanwhile the other threads are stopped, so they are
// resumed before the next attempt.
constexpr Nanoseconds patience = 200 * ns_per_ms;
constexpr int attempts = 5;
constexpr useconds_t pause_us = 20'000;
constexpr useconds_t poll_us = 20;

}  // namespace

void list_living_threads(pid_t process, List<pid_t>& threads) {
  for_each_thread(process, [&](pid_t id) {
    char path[64];
    format(path, sizeof path, "/proc/%d/task/%d/status", process, id);
    PieceReader lines{path};
    bool is_gone = true;
    std::uint64_t pending = 0;
    while (const char* const line = lines.next('\n')) {
      if (std::strncmp(line, "State:\t", 7) == 0) is_gone = std::strchr("ZX", line[7]) != nullptr;
      if (std::strncmp(line, "SigPnd:\t", 8) == 0) pending = std::strtoull(line + 8, nullptr, 16);
    }
    const bool is_killed = !is_gone && (pending >> (SIGKILL - 1) & 1) != 0;
    if (is_killed) threads.clear();
    if (!is_gone && !is_killed) threads.add(id);
    return !is_killed;
  });
}

// It is a zombie, or gone.
bool StoppedThreads::is_gone(pid_t thread) const {
  char path[64];
  format(path, sizeof path, "/proc/%d/task/%d/stat", process_.pid(), thread);
  PieceReader stat{path};
  const char* const line = stat.next('\n');
  const char* const name_end = line != nullptr ? std::strrchr(line, ')') : nullptr;
  return name_end == nullptr || std::strchr("ZX", name_end[2]) != nullptr;
}

int StoppedThreads::seize_new_threads(bool& found_new) {
  found_new = false;
  int error = 0;
  const bool is_there = for_each_thread(process_.pid(), [&](pid_t id) {
    for (const Thread& thread : threads_) {
      if (thread.id == id) return true;
    }
    if (ptrace(PTRACE_SEIZE, id, nullptr, nullptr) != 0) {
      const int refusal = errno;
      error = refusal == ESRCH || is_gone(id) ? 0 : refusal;
      return error == 0;
    }
    threads_.add({id, false, false, 0});
    found_new = true;
    ptrace(PTRACE_INTERRUPT, id, nullptr, nullptr);
    return true;
  });
  return is_there ? error : ESRCH;
}

// False also if it has ended; then its number is 0.
bool StoppedThreads::has_stopped(Thread& thread) {
  int status = 0;
  const pid_t waited = waitpid(thread.id, &status, __WALL | WNOHANG);
  if (waited == 0 && !is_gone(thread.id)) return false;
  if (waited <= 0 || !WIFSTOPPED(status)) {
    thread.id = 0;
    return false;
  }
  thread.is_stopped = true;
  // Otherwise a signal is being delivered, which it gets later.
  thread.may_call = event_of(status) == PTRACE_EVENT_STOP;
  thread.signal = event_of(status) == 0 ? WSTOPSIG(status) : 0;
  return true;
}

int StoppedThreads::wait_for_all(Nanoseconds until) {
  for (std::size_t i = 0; i < threads_.count();) {
    Thread& thread = threads_[i];
    if (thread.is_stopped || has_stopped(thread)) {
      ++i;
    } else if (thread.id == 0) {
      threads_.remove(thread);
    } else if (now_ns() > until) {
      stuck_thread_ = thread.id;
      return ETIMEDOUT;
    } else {
      usleep(poll_us);
    }
  }
  return 0;
}

int StoppedThreads::stop_all() {
  stopped_at_ = now_ns();
  // Running threads start others. When all known ones are stopped and there are no others, none is
  // running.
  for (bool found_new = true; found_new;) {
    if (const int error = seize_new_threads(found_new); error != 0) return error;
    if (const int error = wait_for_all(stopped_at_ + patience); error != 0) return error;
  }
  return threads_.is_empty() ? ESRCH : 0;
}

int StoppedThreads::stop() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE})
    sigaddset(&ends, signal);
  sigprocmask(SIG_BLOCK, &ends, &former_mask_);
  is_masked_ = true;
  int error = stop_all();
  for (int attempt = 1; error == ETIMEDOUT && attempt < attempts; ++attempt) {
    detach_stopped();
    usleep(pause_us);
    error = stop_all();
  }
  if (error != 0) detach_all();
  return error;
}

// The others stay in the list, and still have to stop.
void StoppedThreads::detach_stopped() {
  for (std::size_t i = 0; i < threads_.count();) {
    Thread& thread = threads_[i];
    if (thread.is_stopped || has_stopped(thread)) {
      if (thread.may_call) resume_wait(thread.id);
      ptrace(PTRACE_DETACH, thread.id, nullptr, thread.signal);
    } else if (thread.id != 0) {
      ++i;
      continue;
    }
    threads_.remove(thread);
  }
}

void StoppedThreads::detach_all() {
  detach_stopped();
  threads_.clear();  // one that stays in the kernel is released when this process ends
  if (is_masked_) sigprocmask(SIG_SETMASK, &former_mask_, nullptr);
  is_masked_ = false;
}

bool StoppedThreads::write(std::uintptr_t address, const void* from, std::size_t bytes) const {
  const iovec here{const_cast<void*>(from), bytes};
  const iovec there{reinterpret_cast<void*>(address), bytes};
  // Not by the process's number, since its first thread may have ended.
  return !threads_.is_empty() &&
         process_vm_writev(threads_[0].id, &here, 1, &there, 1, 0) == static_cast<ssize_t>(bytes);
}

}  // namespace ts
