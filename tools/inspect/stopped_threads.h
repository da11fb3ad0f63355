// All threads of a process, stopped by ptrace while its memory is changed. Interrupted waits in the
// kernel restart, on x86-64 even those that the kernel would end with EINTR (system_caller.h).
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "common/system.h"
#include "inspect/process.h"

namespace ts {

// The ptrace(2) event in the status of a stopped thread; 0 if it is about to get a signal.
constexpr unsigned event_of(int status) { return static_cast<unsigned>(status) >> 16; }

// The surviving threads of a process; none if it ends as a whole, by exit_group or a signal.
void list_living_threads(pid_t process, List<pid_t>& threads);

class StoppedThreads {
 public:
  struct Thread {
    pid_t id;
    bool is_stopped;
    bool may_call;  // it is where it can make a system call
    int signal;     // to deliver when it is resumed
  };

  explicit StoppedThreads(const Process& process) : process_{process} {}
  ~StoppedThreads() { detach_all(); }
  StoppedThreads(const StoppedThreads&) = delete;
  StoppedThreads& operator=(const StoppedThreads&) = delete;

  // Stops all threads; signals that would end this process wait until they are resumed. Returns 0,
  // or an error number, and then they keep running: ESRCH if the process has ended, EPERM if it may
  // not be stopped, ETIMEDOUT if a thread stays in the kernel.
  int stop();
  void detach_all();

  // Since they began to stop.
  Nanoseconds stopped_ns() const { return now_ns() - stopped_at_; }
  // The thread that did not stop.
  pid_t stuck_thread() const { return stuck_thread_; }
  const Thread* begin() const { return threads_.begin(); }
  const Thread* end() const { return threads_.end(); }

  // Writes to the memory of the process. False if it is not mapped.
  bool write(std::uintptr_t address, const void* from, std::size_t bytes) const;

 private:
  int stop_all();
  int seize_new_threads(bool& found_new);
  int wait_for_all(Nanoseconds until);
  bool has_stopped(Thread& thread);
  void detach_stopped();
  bool is_gone(pid_t thread) const;

  const Process& process_;
  List<Thread> threads_;
  sigset_t former_mask_{};
  bool is_masked_ = false;
  Nanoseconds stopped_at_ = 0;
  pid_t stuck_thread_ = 0;
};

}  // namespace ts
