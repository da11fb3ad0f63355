// Pitfalls of an allocator's background thread and of purging, each in its own process. `traps`, or
// LD_PRELOAD=libjemalloc.so.2 traps, prints a line for each: its name, a tab, and "passes" or what
// went wrong. `traps NAME` runs one of them in this process.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "conformance/listed.h"
#include "conformance/proc_text.h"
#include "programs/support/seccomp.h"

enum { mb = 1 << 20, longest_seconds = 30 };

static const char not_here[] = "cannot be tried here";

static void sleep_ms(long ms) {
  const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
  nanosleep(&time, NULL);
}

// ---- loads ----

// Allocates this many megabytes in blocks of many sizes, and frees them; all but one in this many,
// if that is not 0.
static void burst_but(size_t megabytes, size_t stays) {
  const size_t count = megabytes * (mb / 1000);
  void** const blocks = malloc(count * sizeof *blocks);
  for (size_t i = 0; i < count; ++i) {
    blocks[i] = malloc(500 + i % 1000);
    memset(blocks[i], 1, 500 + i % 1000);
  }
  for (size_t i = 0; i < count; ++i) {
    if (stays == 0 || i % stays != stays - 1) free(blocks[i]);
  }
  free(blocks);
}

static void burst(size_t megabytes) { burst_but(megabytes, 0); }

static void* burst_but_some(void* megabytes) {
  burst_but((size_t)megabytes, 2000);
  return NULL;
}

static void* burst_in_thread(void* megabytes) {
  burst((size_t)megabytes);
  return NULL;
}

static atomic_bool is_over;

static void* burst_until_over(void* ignored) {
  while (!is_over) burst(8);
  return ignored;
}

static pthread_t start(void* (*run)(void*), size_t argument) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, (void*)argument) != 0) abort();
  return thread;
}

static void in_thread(void* (*run)(void*), size_t argument) {
  pthread_join(start(run, argument), NULL);
}

// Makes an allocator start its thread, if it has one.
static void be_threaded(void) {
  in_thread(burst_in_thread, 64);
  burst(64);
  sleep_ms(20);
}

// ---- what the kernel reports ----

// Allocates nothing (proc_text.h): the child of "MADV_DONTFORK memory" has freed memory that it
// does not have.
static size_t count_of(const char* path, const char* key) {
  const long figure = figure_of(path, key);
  return figure > 0 ? (size_t)figure : 0;
}

static size_t resident_kb(void) { return count_of("/proc/self/status", "\nVmRSS:"); }
static size_t peak_kb(void) { return count_of("/proc/self/status", "\nVmHWM:"); }
static size_t threads(void) { return count_of("/proc/self/status", "\nThreads:"); }

// How often threads of the process other than this one were woken, or preempted.
static size_t switches_of_others(void) {
  size_t switches = 0;
  DIR* const folder = opendir("/proc/self/task");
  for (const struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    if (atoi(entry->d_name) <= 0 || atoi(entry->d_name) == getpid()) continue;
    char path[300];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", entry->d_name);
    switches += count_of(path, "\nvoluntary_ctxt_switches:");
  }
  closedir(folder);
  return switches;
}

static double cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

// The end of a child: null if its status is 0.
static const char* end_of(pid_t child) {
  int status = 0;
  // Some children work for four seconds, and for more on a busy machine.
  for (int i = 0; i < 2000; ++i) {
    if (waitpid(child, &status, WNOHANG) == child)
      return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? NULL : "a child failed";
    sleep_ms(10);
  }
  kill(child, SIGKILL);
  return "a child hangs";
}

// ---- the traps ----

typedef struct Trap {
  const char* (*run)(void);
  const char* name;
} Trap;
extern const Trap __start_traps[];
extern const Trap __stop_traps[];

// Returns what goes wrong, or null.
#define TRAP(name) LISTED_FUNCTION(Trap, traps, const char*, name)

TRAP("fork with a background thread") {
  be_threaded();
  start(burst_until_over, 0);
  const char* broken = NULL;
  for (int i = 0; i < 100 && broken == NULL; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      burst(2);
      _exit(0);
    }
    broken = end_of(child);
  }
  is_over = true;
  return broken;
}

static const char* gives_back(size_t peak) {
  for (int i = 0; i < 10; ++i) {
    sleep_ms(100);
    if (resident_kb() * 10 < peak) return NULL;
  }
  static char text[100];
  snprintf(text, sizeof text, "%zu%% of the peak stays after 1 s", 100 * resident_kb() / peak);
  return text;
}

TRAP("idle memory is purged to 10% in 1 s") {
  const pthread_t thread = start(burst_but_some, 250);
  burst_but_some((void*)250);
  pthread_join(thread, NULL);
  return gives_back(peak_kb());
}

TRAP("the same in a fork child") {
  be_threaded();
  const pid_t child = fork();
  if (child == 0) {
    const size_t before = resident_kb();
    in_thread(burst_in_thread, 1);
    burst_but_some((void*)250);
    const size_t peak = before + 250 * 1024;
    for (int i = 0; i < 10 && resident_kb() * 5 > peak; ++i) sleep_ms(100);
    _exit(resident_kb() * 5 > peak);
  }
  return end_of(child) == NULL ? NULL : "a fifth of the peak stays";
}

TRAP("setuid with a background thread") {
  be_threaded();
  if (setgid(getgid()) != 0 || setuid(getuid()) != 0) return "setuid is refused";
  return NULL;
}

TRAP("signals reach only program threads") {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  // Not by inheritance: an allocator's thread may be started where they are not blocked.
  in_thread(burst_in_thread, 64);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  be_threaded();
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  kill(getpid(), SIGUSR1);
  sleep_ms(100);
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGUSR1) == 1 ? NULL : "another thread took a signal";
}

static bool may_unshare(void) {
  const pid_t child = fork();
  if (child == 0) _exit(unshare(CLONE_NEWUSER) == 0 ? 0 : 1);
  return end_of(child) == NULL;
}

TRAP("a single thread stays single") {
  const bool may = may_unshare();
  burst(64);
  sleep_ms(300);
  if (threads() != 1) return "a single-threaded process has two";
  const char* const single = dlsym(RTLD_DEFAULT, "__libc_single_threaded");
  if (single != NULL && *single == 0) return "libc takes it for threaded";
  if (may && unshare(CLONE_NEWUSER) != 0) return "unshare(CLONE_NEWUSER) fails";
  return NULL;
}

TRAP("a sandbox without threads") {
  burst(8);
  if (stop_calls(SYS_clone, SYS_clone3, SECCOMP_RET_KILL_PROCESS) != 0) return not_here;
  burst(64);
  sleep_ms(300);
  return NULL;
}

// Interposes libc's: allocates, as sanitizers and profilers do, and can refuse threads that the
// program did not ask for.
static _Thread_local bool is_programs;
static atomic_bool refuses_others;
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) = NULL;
  *(void**)&create = dlsym(RTLD_NEXT, "pthread_create");
  void* blocks[200];
  for (size_t i = 0; i < 200; ++i) blocks[i] = malloc(100 * i);
  for (size_t i = 0; i < 200; ++i) free(blocks[i]);
  return refuses_others && !is_programs ? EAGAIN : create(thread, attributes, run, argument);
}

TRAP("pthread_create that allocates") {
  be_threaded();
  return NULL;
}

TRAP("pthread_create that fails") {
  refuses_others = true;
  is_programs = true;
  const pthread_t thread = start(burst_in_thread, 64);
  is_programs = false;
  burst(64);
  pthread_join(thread, NULL);
  burst(64);
  sleep_ms(300);
  return NULL;
}

// Each thread has these, even an allocator's.
static _Thread_local volatile char thread_local_bytes[2 * mb];

TRAP("large thread-local storage") {
  thread_local_bytes[mb] = 1;
  be_threaded();
  return NULL;
}

TRAP("vfork with a background thread") {
  be_threaded();
  start(burst_until_over, 0);
  for (int i = 0; i < 200; ++i) {
    const pid_t child = vfork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
  }
  is_over = true;
  return NULL;
}

static size_t threads_of(pid_t process) {
  char path[60];
  snprintf(path, sizeof path, "/proc/%d/status", process);
  return count_of(path, "\nThreads:");
}

static void* free_it(void* block) {
  free(block);
  return NULL;
}

static int burst_as_guest(void* ignored) {
  (void)ignored;
  burst(2);
  return threads_of((pid_t)syscall(SYS_getpid)) == 1 ? 0 : 1;
}

// Children that no handler of pthread_atfork hears of: in memory of their own, and in the parent's.
TRAP("raw clone with a background thread") {
  // A thread of which the first call is a free starts nothing: the next malloc, the child's, may have to.
  in_thread(free_it, (size_t)malloc(100));
  alignas(16) static char stack[mb];
  const pid_t guest =
      clone(burst_as_guest, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
  if (end_of(guest) != NULL) return "a child in its parent's memory gets a thread";
  be_threaded();
  sleep_ms(2000);  // until another thread is idle, and holds no lock
  void* const inherited = malloc(100 * 1000);
  const char* broken = NULL;
  for (int i = 0; i < 100 && broken == NULL; ++i) {
    const pid_t child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
      free(inherited);
      burst(64);
      _exit(0);
    }
    broken = end_of(child);
    alarm(longest_seconds);  // for each child: an idle machine takes half of it for all of them
  }
  free(inherited);
  be_threaded();
  return broken;
}

static void* whole_pages(size_t bytes) {
  void* block = NULL;
  if (posix_memalign(&block, 4096, bytes) != 0) abort();
  memset(block, 1, bytes);
  return block;
}

// Frees the block, which the system does not take back, and half of others. Returns whether most of
// the others stay resident for two seconds.
static int is_kept_by(char* block) {
  enum { count = 40, each = 4 * mb };
  void* others[count];
  for (int i = 0; i < count; ++i) others[i] = whole_pages(each);
  free(block);
  const size_t peak = resident_kb();
  for (int i = 0; i < count; i += 2) free(others[i]);
  for (int i = 0; i < 20 && resident_kb() * 10 > peak * 7; ++i) sleep_ms(100);
  return resident_kb() * 10 > peak * 7;
}

// In the child that is memory without pages, of which the system takes nothing back. It is the longest
// that is free there.
TRAP("MADV_DONTFORK memory") {
  be_threaded();
  enum { bytes = 64 * mb };
  char* const block = whole_pages(bytes);
  if (madvise(block, bytes, MADV_DONTFORK) != 0) return not_here;
  const pid_t child = fork();
  if (child == 0) {
    in_thread(burst_in_thread, 1);
    if (is_kept_by(block)) _exit(1);
    sleep_ms(1000);
    const double before = cpu_seconds();
    sleep_ms(1000);
    _exit(cpu_seconds() - before < 0.1 ? 0 : 2);
  }
  free(block);
  return end_of(child) == NULL ? NULL : "MADV_DONTFORK memory prevents purging";
}

TRAP("a locked block among others") {
  enum { bytes = 32 * mb };
  be_threaded();
  char* const block = whole_pages(bytes);
  if (mlock(block, bytes) != 0) return not_here;
  return is_kept_by(block) ? "a locked block prevents purging" : NULL;
}

static bool is_early;
TRAP("threads in a constructor") { return is_early ? NULL : "the constructor did not run"; }

__attribute__((constructor)) static void begin_early(int argc, char** argv, char** environment) {
  (void)environment;
  if (argc < 2 || strcmp(argv[1], "threads in a constructor") != 0) return;
  in_thread(burst_in_thread, 32);
  burst(32);
  is_early = true;
}

static void burst_at_exit(void) { burst(16); }
TRAP("threads after exit") {
  be_threaded();
  atexit(burst_at_exit);
  start(burst_until_over, 0);
  exit(0);  // while the thread allocates
}

TRAP("dlopen and dlclose") {
  be_threaded();
  start(burst_until_over, 0);
  for (int i = 0; i < 300; ++i) {
    void* const library = dlopen("libresolv.so.2", RTLD_NOW);
    if (library == NULL) return not_here;
    dlclose(library);
  }
  is_over = true;
  return NULL;
}

TRAP("locked memory") {
  if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return not_here;
  in_thread(burst_in_thread, 64);
  burst(64);
  sleep_ms(1000);
  const double before = cpu_seconds();
  sleep_ms(1000);
  return cpu_seconds() - before < 0.1 ? NULL : "it keeps retrying";
}

TRAP("no wakeups at rest") {
  be_threaded();
  sleep_ms(4000);
  const size_t before = switches_of_others();
  sleep_ms(2000);
  return switches_of_others() - before <= 2 ? NULL : "it wakes up at rest";
}

static int run_one(const char* name) {
  for (const Trap* trap = __start_traps; trap != __stop_traps; ++trap) {
    if (strcmp(trap->name, name) != 0) continue;
    const char* const broken = trap->run();
    if (broken != NULL) printf("%s", broken);
    return 0;
  }
  fprintf(stderr, "traps: there is no trap %s\n", name);
  return 2;
}

// In a process of its own, with a time limit.
static void run_and_print(const char* name) {
  int ends[2];
  if (pipe(ends) != 0) abort();
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    alarm(longest_seconds);
    execl("/proc/self/exe", "traps", name, (char*)NULL);
    _exit(127);
  }
  close(ends[1]);
  char said[200] = "";
  size_t length = 0;
  for (ssize_t got; length < sizeof said - 1 &&
                    (got = read(ends[0], said + length, sizeof said - 1 - length)) > 0;)
    length += (size_t)got;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) {
    const bool hangs = WTERMSIG(status) == SIGALRM;
    snprintf(said, sizeof said, hangs ? "hangs" : "ends by signal %d", WTERMSIG(status));
  } else if (WEXITSTATUS(status) != 0) {
    snprintf(said, sizeof said, "exit status %d", WEXITSTATUS(status));
  }
  printf("%s\t%s\n", name, said[0] != '\0' ? said : "passes");
  fflush(stdout);
}

int main(int argc, char** argv) {
  if (argc > 1) return run_one(argv[1]);
  for (const Trap* trap = __start_traps; trap != __stop_traps; ++trap) run_and_print(trap->name);
  return 0;
}
