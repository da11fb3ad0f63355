// Signals: the mask is unchanged, and a signal from another process has the effect that it has
// without the allocator, even if the allocator has a handler of its own.
// (reliability/signals_and_jumps.c tests signals in the middle of an allocation.)
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

CHECK("the signal mask is left alone") {
  sigset_t blocked;
  sigset_t now;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  pthread_sigmask(SIG_SETMASK, &blocked, NULL);
  for (size_t bytes = 1; bytes < 50000000; bytes = bytes * 3 + 1)
    free(opaque_pointer(malloc(bytes)));
  pthread_sigmask(SIG_SETMASK, NULL, &now);
  EXPECT(sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGUSR2) == 0,
         "the signal mask changed");
}

// Enough that an allocator that guards some of its blocks (TSMALLOC_GUARD_SAMPLE) has started to.
static void allocate_some(void) {
  for (int i = 0; i < 5000; ++i) opaque_pointer(malloc(64));
}

CHECK("a SIGSEGV that is sent ends the process") {
  static const int ways = 3;
  for (int way = 0; way < ways; ++way) {
    const pid_t child = fork();
    if (child == 0) {
      allocate_some();
      if (way == 0) raise(SIGSEGV);
      if (way == 1) kill(getpid(), SIGSEGV);
      if (way == 2) sigqueue(getpid(), SIGSEGV, (union sigval){.sival_int = 1});
      _exit(3);
    }
    const int status = status_of(child);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "way %d: status %#x", way, status);
  }
}

static const char ignored[] = "a SIGSEGV that was ignored from the start is ignored";

CHECK(ignored) {
  static const char variable[] = "IS_IGNORED";
  if (getenv(variable) == NULL) {
    setenv(variable, "1", 1);
    const pid_t child = fork();
    if (child == 0) {
      signal(SIGSEGV, SIG_IGN);
      execl("/proc/self/exe", "signals", ignored, (char*)NULL);
      _exit(3);
    }
    const int status = status_of(child);
    EXPECT(status == 0, "status %#x", status);
    return;
  }
  allocate_some();
  raise(SIGSEGV);
  kill(getpid(), SIGSEGV);
  // A real access is not ignored.
  const pid_t child = fork();
  if (child == 0) {
    *(volatile char*)opaque_pointer((void*)8) = 1;
    _exit(3);
  }
  const int status = status_of(child);
  EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %#x", status);
}

static const char faults[] = "a handler of SIGSEGV has its flags and its mask";
static const char way_of_fault[] = "WAY_OF_FAULT";

static void at_fault(int number) {
  static volatile int calls;
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  const bool has_mask = sigismember(&blocked, SIGUSR1) == 1 && sigismember(&blocked, number) == 1;
  if (!has_mask) _exit(4);
  if (++calls == 2) _exit(5);  // SA_RESETHAND: the same access, on return, ends the process
}

// Before the library's first fault: after that its own handler, for sampled blocks, comes first.
__attribute__((constructor)) static void await_fault(void) {
  const char* const way = getenv(way_of_fault);
  if (way == NULL) return;
  struct sigaction action = {.sa_handler = at_fault};
  if (way[0] == '1') action.sa_flags = (int)SA_RESETHAND;
  sigaddset(&action.sa_mask, SIGUSR1);
  sigaction(SIGSEGV, &action, NULL);
}

CHECK(faults) {
  if (getenv(way_of_fault) != NULL) {
    allocate_some();
    *(volatile char*)opaque_pointer((void*)8) = 1;
    _exit(3);
  }
  for (int way = 0; way < 2; ++way) {
    const pid_t child = fork();
    if (child == 0) {
      setenv(way_of_fault, way == 0 ? "0" : "1", 1);
      execl("/proc/self/exe", "signals", faults, (char*)NULL);
      _exit(6);
    }
    const int status = status_of(child);
    if (way == 0)
      EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 5, "status %#x", status);
    else
      EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "status %#x", status);
  }
}
