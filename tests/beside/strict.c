// A sandbox: from some moment on, each system call ends the process, except those that glibc's
// malloc makes and those of this program. Usage: strict WHEN [CALL...]. WHEN is when the filter is
// installed:
//
//     preinit  before the first constructor, and before the program's first malloc
//     main     in main, before the program's first malloc; a second thread waits for it
//     threads  after two threads have allocated, both of which continue
//
// CALL is a further allowed call. (The filter sends SIGSYS instead of killing, so that the call can
// be named.)
#include <linux/futex.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#include "programs/support/seccomp.h"

enum { no_filter = 77, most_calls = 64 };

static const char* when = "";
static unsigned allowed[most_calls] = {
    SYS_mmap,  SYS_munmap,       SYS_madvise, SYS_mprotect,   SYS_mremap,      SYS_brk,
    SYS_futex, SYS_rt_sigreturn, SYS_exit,    SYS_exit_group, SYS_sched_yield, SYS_write,
};
static size_t allowed_calls = 12;

// Further calls that can be allowed by name.
static const struct {
  const char* name;
  unsigned number;
} other_calls[] = {
#define CALL(name) \
  { #name, SYS_##name }
    CALL(clone),
    CALL(clone3),
    CALL(close),
    CALL(fcntl),
    CALL(getpid),
    CALL(getrandom),
    CALL(msync),
    CALL(openat),
    CALL(prctl),
    CALL(pread64),
    CALL(read),
    CALL(rt_sigprocmask),
    CALL(rseq),
    CALL(sched_getaffinity),
    CALL(set_robust_list),
};
enum { known_calls = sizeof other_calls / sizeof *other_calls };

static _Noreturn void refused(int signal, siginfo_t* about, void* context) {
  (void)signal, (void)context;
  dprintf(2, "%s kills system call %d\n", when, about->si_syscall);
  _exit(1);
}

static void begin_sandbox(void) {
  struct sigaction action = {.sa_flags = SA_SIGINFO};
  action.sa_sigaction = refused;
  sigaction(SIGSYS, &action, NULL);
  static struct sock_filter filter[4 + 2 * most_calls];
  unsigned short length = 0;
  filter[length++] =
      (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
  filter[length++] =
      (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCHITECTURE, 1, 0);
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  filter[length++] =
      (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
  for (size_t i = 0; i < allowed_calls; ++i) {
    filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  }
  filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP);
  if (set_filter(filter, length, SECCOMP_FILTER_FLAG_TSYNC) != 0) _exit(no_filter);
}

// ---- what is done under it ----

enum { at_a_time = 64 };

static void need(bool good) {
  if (good) return;
  dprintf(2, "%s: no memory\n", when);
  _exit(1);
}

static void release_all(void** blocks) {
  for (int i = 0; i < at_a_time; ++i) {
    free(blocks[i]);
    blocks[i] = NULL;
  }
}

static void use_heap(void) {
  static __thread void* blocks[at_a_time];
  size_t turn = 0;
  for (size_t bytes = 1; bytes <= (size_t)64 << 20; bytes += bytes / 4 + 1) {
    for (int i = 0; i < (bytes < 100000 ? 20 : 2); ++i) {
      void** const block = &blocks[turn++ % at_a_time];
      free(*block);
      *block = turn % 3 == 0 ? calloc(1, bytes) : malloc(bytes);
      need(*block != NULL);
      ((char*)*block)[0] = ((char*)*block)[bytes - 1] = 1;
    }
    if (bytes > (size_t)1 << 20) release_all(blocks);
  }
  // Filled, so that it is worthwhile to purge a large block's pages.
  for (int i = 0; i < 4; ++i) {
    unsigned char* filled = malloc((size_t)10 << 20);
    need(filled != NULL);
    memset(filled, 1, (size_t)10 << 20);
    free(filled);
  }
  unsigned char* grown = NULL;
  for (size_t bytes = 100; bytes <= (size_t)32 << 20; bytes *= 2) {
    grown = realloc(grown, bytes);
    need(grown != NULL);
    grown[bytes / 2] = 1;
  }
  free(grown);
  void* aligned = NULL;
  need(posix_memalign(&aligned, 1 << 16, 100000) == 0);
  free(aligned);
  release_all(blocks);
  malloc_trim(0);
}

// ---- two threads ----

static atomic_int step;

static void advance(int to) {
  atomic_store(&step, to);
  syscall(SYS_futex, &step, FUTEX_WAKE_PRIVATE, 100, NULL);
}
static void await(int wanted) {
  for (int now = atomic_load(&step); now < wanted; now = atomic_load(&step))
    syscall(SYS_futex, &step, FUTEX_WAIT_PRIVATE, now, NULL);
}

static void* second(void* also_before) {
  if (also_before != NULL) use_heap();
  advance(1);
  await(2);
  use_heap();
  advance(3);
  await(4);
  return NULL;
}

static void with_threads(bool also_before) {
  pthread_t thread;
  // libc allocates for a new thread; under preinit there is none.
  if (pthread_create(&thread, NULL, second, also_before ? &step : NULL) != 0) _exit(1);
  if (also_before) use_heap();
  await(1);
  begin_sandbox();
  advance(2);
  use_heap();
  await(3);
}

static bool is(const char* moment) { return strcmp(when, moment) == 0; }

static void before_constructors(int argc, char** argv) {
  if (argc < 2) return;
  when = argv[1];
  for (int i = 2; i < argc && allowed_calls < most_calls; ++i)
    for (size_t k = 0; k < known_calls; ++k)
      if (strcmp(other_calls[k].name, argv[i]) == 0)
        allowed[allowed_calls++] = other_calls[k].number;
  if (is("preinit")) begin_sandbox();
}

__attribute__((section(".preinit_array"),
               used)) static void (*const first)(int, char**) = before_constructors;

int main(void) {
  if (is("preinit")) {
    use_heap();
  } else {
    with_threads(is("threads"));
  }
  return 0;
}
