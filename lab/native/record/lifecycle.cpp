// Forks, exits, and actions that become forbidden; see image.h.
#include <dlfcn.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdarg>

#include "interpose/next.h"
#include "record/image.h"
#include "record/thread.h"

namespace ts::record {
namespace {

constinit Next<pid_t()> next_fork{"_Fork"};
constinit Next<void(int)> next_exit{"_exit"};
using Prctl = int(int, unsigned long, unsigned long, unsigned long, unsigned long);
constinit Next<Prctl> next_prctl{"prctl"};

// The child inherits the objects that are live now, so this is the fork's place in the order. Other
// threads may continue to allocate before it really happens; the child does not know what they got.
void before_fork() {
  ImagePlace* const image = own_image();
  if (image == nullptr) return;
  self.fork_number = image->next_fork.fetch_add(1, std::memory_order_relaxed) + 1;
  write_event(*image, RawKind::fork, self.fork_number, 0);
}

void in_parent() { self.fork_number = 0; }

void in_child() { begin_child(self.fork_number); }

void note_exit() {
  ImagePlace* const image =
      own_page.load(std::memory_order_relaxed)->image.load(std::memory_order_acquire);
  if (image == nullptr) return;
  // A child of vfork runs in our memory, and ends without us.
  if (may_call_system.load(std::memory_order_relaxed) && !is_own_process()) return;
  image->leave.store(ImageLeave::exits, std::memory_order_relaxed);
}

// For programs that return from main, or call exit.
[[gnu::destructor]] void note_exit_at_unload() { note_exit(); }

// A thread that forbids itself to read the processor's counter, or to make system calls, would be
// killed if we did so. Only prctl is watched: what a filter set with seccomp(2) itself forbids
// matters only when the ring is full, and then no more than for any other lock.
void before_prctl(int operation, unsigned long argument) {
  if (operation == PR_SET_TSC && argument == PR_TSC_SIGSEGV) {
    may_read_clock.store(false, std::memory_order_relaxed);
  }
  if (operation == PR_SET_SECCOMP) {
    may_call_system.store(false, std::memory_order_relaxed);
    if (argument == SECCOMP_MODE_STRICT) may_read_clock.store(false, std::memory_order_relaxed);
  }
}

}  // namespace

constinit std::atomic<bool> may_read_clock{true};
constinit std::atomic<bool> may_call_system{true};

// A forked child must not ask the loader, so everything is looked up now.
void watch_lifecycle() {
  next_fork.get();
  next_exit.get();
  next_prctl.get();
  if (void* const flag = look_up(RTLD_DEFAULT, "__libc_single_threaded")) {
    one_thread_flag = static_cast<const char*>(flag);
  }
  pthread_atfork(before_fork, in_parent, in_child);
  watch_threads();
}

void watch_lifecycle_in_child() { watch_threads_in_child(); }

}  // namespace ts::record

extern "C" {

// fork calls the handlers, and this function does not.
pid_t _Fork() noexcept {
  ts::record::before_fork();
  auto* const next = ts::record::next_fork.get();
  const pid_t child = next != nullptr ? next() : -1;
  if (child == 0) {
    ts::record::in_child();
  } else {
    ts::record::in_parent();
  }
  return child;
}

void _exit(int status) {
  ts::record::note_exit();
  ts::record::next_exit.get()(status);
  __builtin_unreachable();
}

void _Exit(int status) noexcept { _exit(status); }

int prctl(int operation, ...) noexcept {
  va_list list;
  va_start(list, operation);
  unsigned long arguments[4];
  for (unsigned long& argument : arguments) argument = va_arg(list, unsigned long);
  va_end(list);
  ts::record::before_prctl(operation, arguments[0]);
  return ts::record::next_prctl.get()(operation, arguments[0], arguments[1], arguments[2],
                                      arguments[3]);
}

}  // extern "C"
