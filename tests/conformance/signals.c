// Signals that arrive in the middle of an allocation, on every thread: system calls return early,
// and nothing else changes. A signal that another process sends does what it does without the
// allocator, even if the allocator has a handler of its own. (A handler that allocates is the program's error, and not checked.)
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

static atomic_int signals_seen;
static atomic_bool stop;

static void count_signal(int number) {
  (void)number;
  atomic_fetch_add(&signals_seen, 1);
}

static void* churn(void* argument) {
  uint64_t random = (uint64_t)(uintptr_t)argument;
  void* block[64] = {0};
  size_t bytes[64] = {0};
  while (!atomic_load(&stop)) {
    const size_t i = next_random(&random) % COUNT_OF(block);
    EXPECT(first_damage(block[i], bytes[i], i) == bytes[i], "a block of %zu bytes was overwritten",
           bytes[i]);
    free(block[i]);
    bytes[i] = random_size(&random, 300000) / 8;
    block[i] = malloc(bytes[i]);
    REQUIRE(block[i] != NULL, "malloc(%zu) is null", bytes[i]);
    fill(block[i], bytes[i], i);
  }
  for (size_t i = 0; i < COUNT_OF(block); ++i) free(block[i]);
  return NULL;
}

static void interrupted_allocations(void) {
  enum { threads = 3, interval_microseconds = 500, wanted_signals = 400 };
  struct sigaction action = {.sa_handler = count_signal};  // without SA_RESTART
  REQUIRE(sigaction(SIGVTALRM, &action, NULL) == 0, "sigaction: %s", strerror(errno));
  REQUIRE(sigaction(SIGPROF, &action, NULL) == 0, "sigaction: %s", strerror(errno));
  const struct itimerval often = {{0, interval_microseconds}, {0, interval_microseconds}};
  setitimer(ITIMER_PROF, &often, NULL);
  pthread_t thread[threads];
  for (size_t i = 0; i < threads; ++i) {
    const int error = pthread_create(&thread[i], NULL, churn, (void*)(uintptr_t)(i + 1));
    REQUIRE(error == 0, "pthread_create: %s", strerror(error));
  }
  // Besides the timer's signals, which go to any running thread, some for each thread.
  while (atomic_load(&signals_seen) < wanted_signals) {
    for (size_t i = 0; i < threads; ++i) pthread_kill(thread[i], SIGVTALRM);
    nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
  }
  atomic_store(&stop, true);
  for (size_t i = 0; i < threads; ++i) pthread_join(thread[i], NULL);
  setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
}

static void blocked_signals_stay_blocked(void) {
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

// So many that an allocator that guards some of its blocks (TSMALLOC_GUARD_SAMPLE) has begun to.
static void allocate_some(void) {
  for (int i = 0; i < 5000; ++i) opaque_pointer(malloc(64));
}

static int status_of(pid_t child) {
  int status = 0;
  REQUIRE(child >= 0, "fork: %s", strerror(errno));
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

static void sent_faults_end_the_process(void) {
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

static void sent_faults_are_ignored(void) {
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
  // An access is not.
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

// Before the library knows of a fault: then its own handler, for sampled blocks, comes first.
__attribute__((constructor)) static void await_fault(void) {
  const char* const way = getenv(way_of_fault);
  if (way == NULL) return;
  struct sigaction action = {.sa_handler = at_fault};
  if (way[0] == '1') action.sa_flags = (int)SA_RESETHAND;
  sigaddset(&action.sa_mask, SIGUSR1);
  sigaction(SIGSEGV, &action, NULL);
}

static void faults_reach_their_handler(void) {
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

static const Check checks[] = {
    {faults, faults_reach_their_handler},
    {"signals interrupt allocations", interrupted_allocations},
    {"the signal mask is left alone", blocked_signals_stay_blocked},
    {"a SIGSEGV that is sent ends the process", sent_faults_end_the_process},
    {ignored, sent_faults_are_ignored},
};
CHECK_MAIN(checks)
