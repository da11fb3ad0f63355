// The thread that returns idle memory to the system (src/features/background/background_thread.h):
// when it exists, and that it returns memory while the program calls nothing. (tests/traps has what
// it leaves alone.)
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/check.h"
#include "footprint/memory.h"
#include "tsmalloc/tsmalloc.h"

enum { mb = 1 << 20 };

// Each thread has them, so the minimum stack size includes them.
static _Thread_local volatile char thread_local_bytes[2 * mb];

// Interposes the C library's: allocates, as sanitizers and profilers do, and can refuse threads.
static volatile bool refuses_threads;
int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*),
                   void* argument) {
  int (*create)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) = NULL;
  *(void**)&create = dlsym(RTLD_NEXT, "pthread_create");
  void* blocks[200];
  for (size_t i = 0; i < COUNT_OF(blocks); ++i) blocks[i] = malloc(100 * i);
  for (size_t i = 0; i < COUNT_OF(blocks); ++i) free(blocks[i]);
  return refuses_threads ? EAGAIN : create(thread, attributes, run, argument);
}

// How many threads the process has. Allocates nothing.
static unsigned threads(void) { return (unsigned)figure_of("/proc/self/status", "Threads:"); }

// The background threads of this process: how many, and the last one.
static unsigned background_threads(long* task) { return threads_named("tsmalloc", task); }

// The same, after the thread has had time to start.
static unsigned background_threads_soon(long* task) {
  unsigned found = 0;
  for (int tries = 0; tries < 200 && (found = background_threads(task)) == 0; ++tries) idle(10);
  return found;
}

static void* allocate(void* unused) {
  free(opaque_pointer(malloc(100)));
  return unused;
}

// More than a thread frees without getting a heap.
enum { freed_blocks = 20 };
static void* only_free(void* blocks) {
  for (int i = 0; i < freed_blocks; ++i) free(((void**)blocks)[i]);
  return NULL;
}

// Makes the process get a background thread, and returns its number.
static long begin_with_a_background_thread(void) {
  long task = 0;
  allocate(NULL);
  run_thread(allocate, NULL);
  REQUIRE(background_threads_soon(&task) == 1, "there is no background thread");
  return task;
}

// Like an event loop that receives nothing.
static void loop_until_no_step_is_due(void) {
  unsigned waited = 0;
  unsigned steps = 0;
  for (int pause = ts_housekeep(); pause != -1; pause = ts_housekeep()) {
    REQUIRE(pause >= 0 && pause <= 200, "ts_housekeep() is %d", pause);
    idle((unsigned)pause);
    waited += (unsigned)pause;
    REQUIRE(waited <= 5000 && ++steps < 10000, "after %u steps another is due", steps);
  }
  report_figure("%u steps, in %u ms", steps, waited);
}

// ---- when there is a thread ----

CHECK("free starts none, and a later malloc does") {
  long task = 0;
  void* blocks[freed_blocks];
  for (int i = 0; i < freed_blocks; ++i) blocks[i] = opaque_pointer(malloc(100));
  run_thread(only_free, blocks);
  idle(50);
  EXPECT(threads() == 1, "a free started a background thread");
  // The child shares its parent's memory, but is another process.
  const pid_t child = vfork();
  if (child == 0) {
    for (int i = 0; i < 10000; ++i) opaque_pointer(malloc(16 + (size_t)i % 1000));
    _exit(0);
  }
  EXPECT(status_of(child) == 0, "a child does not end");
  EXPECT(threads() == 1, "a malloc in the child of a vfork started a background thread");
  for (int i = 0; i < 10000; ++i) opaque_pointer(malloc(100));
  EXPECT(background_threads_soon(&task) == 1, "no malloc behind a first free started one");
}

CHECK("there is one where threads have large stacks") {
  long task = 0;
  thread_local_bytes[0] = 1;
  allocate(NULL);
  for (int i = 0; i < 20; ++i) run_thread(allocate, NULL);
  EXPECT(background_threads_soon(&task) == 1, "%u background threads", background_threads(&task));
}

static void* wait_for_ever(void* unused) {
  for (;;) pause();
  return unused;
}

// Its calls never come here, but it may purge memory.
CHECK("beside a thread that never allocates") {
  need_glibc("it tells whether there is a second thread");
  start_thread(wait_for_ever, NULL);
  burst(100, 60 * mb);
  idle(2500);
  report_figure("%zu KB are left", resident_bytes() >> 10);
  EXPECT(resident_bytes() <= 12 * mb, "%zu KB are left", resident_bytes() >> 10);
}

static void* refuse_and_allocate(void* unused) {
  refuses_threads = true;
  errno = 7;
  allocate(unused);
  EXPECT(errno == 7, "errno is %d", errno);
  return unused;
}

CHECK("there is none where threads are refused") {
  long task = 0;
  allocate(NULL);
  run_thread(refuse_and_allocate, NULL);
  refuses_threads = false;
  for (int i = 0; i < 3; ++i) run_thread(allocate, NULL);
  EXPECT(background_threads(&task) == 0, "there is a background thread");
  burst(1000, 100 * mb);
  loop_until_no_step_is_due();
  EXPECT(resident_bytes() <= 16 * mb, "%zu KB are left", resident_bytes() >> 10);
}

CHECK("a child has none until its second thread") {
  long task = begin_with_a_background_thread();
  const pid_t child = fork();
  if (child == 0) {
    allocate(NULL);
    burst(1000, 50 * mb);
    if (background_threads(&task) != 0) _exit(1);
    run_thread(allocate, NULL);
    if (background_threads_soon(&task) != 1) _exit(2);
    burst(100000, 100 * mb);
    idle(2000);
    _exit(resident_bytes() < 30 * mb ? 0 : 3);
  }
  const int status = status_of(child);
  EXPECT(status == 0, "the child ends with status %d", status);
}

// ---- what the thread does ----

enum { blocks_of_ended = 60000 };
static void* of_ended[blocks_of_ended];

static void* allocate_and_end(void* unused) {
  for (size_t i = 0; i < blocks_of_ended; ++i)
    of_ended[i] = memset(opaque_pointer(malloc(1600)), 1, 1600);
  return unused;
}

// One block in 20 stays, and keeps the slabs. Only the background thread is left to collect the
// others.
CHECK("what is freed of an ended thread's goes back") {
  long task = 0;
  allocate(NULL);
  run_thread(allocate_and_end, NULL);
  REQUIRE(background_threads_soon(&task) == 1, "there is no background thread");
  idle(1500);
  for (size_t i = 0; i < blocks_of_ended; ++i) {
    if (i % 20 != 0) free(of_ended[i]);
  }
  idle(2500);
  report_figure("%zu KB are left of %d", resident_bytes() >> 10, blocks_of_ended * 1600 >> 10);
  EXPECT(resident_bytes() <= 48 * mb, "%zu KB are left", resident_bytes() >> 10);
}

CHECK("it gets no signals") {
  const long task = begin_with_a_background_thread();
  char path[64];
  char text[4096] = "";
  snprintf(path, sizeof path, "/proc/self/task/%ld/status", task);
  const char* const at = read_text(path, text, sizeof text) ? strstr(text, "SigBlk:") : NULL;
  REQUIRE(at != NULL, "there is no SigBlk");
  const unsigned long blocked = strtoul(at + 7, NULL, 16);
  const unsigned long all = 0x7fffffff & ~(1UL << (SIGKILL - 1) | 1UL << (SIGSTOP - 1));
  EXPECT((blocked & all) == all, "signals %lx are not blocked", all & ~blocked);
}

// ---- the program's own steps ----

CHECK("a program's own steps give back") {
  long task = 0;
  static const size_t sizes[] = {64, 1000, 20000, 1000000};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    const size_t before = resident_bytes();
    const size_t most = burst(sizes[i], 300 * mb);
    REQUIRE(most >= before + 250 * mb, "blocks of %zu bytes are not there", sizes[i]);
    loop_until_no_step_is_due();
    const size_t left = resident_bytes();
    report_figure("after blocks of %zu bytes %zu KB are left of %zu", sizes[i], left >> 10,
                  most >> 10);
    EXPECT(left <= 16 * mb, "after blocks of %zu bytes %zu KB are left", sizes[i], left >> 10);
  }
  EXPECT(background_threads(&task) == 0, "ts_housekeep() started a background thread");
}

// ---- the option ----

// How many background threads there are, after allowing time for a change to `wanted`.
static unsigned background_threads_until(unsigned wanted) {
  long task = 0;
  unsigned found = background_threads(&task);
  for (int tries = 0; tries < 500 && found != wanted; ++tries) {
    idle(10);
    found = background_threads(&task);
  }
  return found;
}

CHECK("the option starts and ends it") {
  long task = 0;
  allocate(NULL);
  EXPECT(ts_option_set("BACKGROUND", "auto") == 0 && background_threads(&task) == 0,
         "a process of one thread has one");
  for (int i = 0; i < 5; ++i) {
    REQUIRE(ts_option_set("BACKGROUND", "on") == 0, "the option is refused");
    EXPECT(background_threads_until(1) == 1, "there is none after `on`");
    if (i == 0) {
      burst(1000000, 100 * mb);
      idle(1500);
      EXPECT(resident_bytes() <= 16 * mb, "%zu KB are left", resident_bytes() >> 10);
    }
    if (i % 2 == 0) idle(300);  // until it sleeps
    REQUIRE(ts_option_set("BACKGROUND", "off") == 0, "the option is refused");
    EXPECT(background_threads_until(0) == 0, "there is one after `off`");
    EXPECT(threads() == 1, "%u threads", threads());
  }
  burst(1000000, 100 * mb);
  loop_until_no_step_is_due();
  EXPECT(resident_bytes() <= 16 * mb, "%zu KB are left", resident_bytes() >> 10);
  run_thread(allocate, NULL);
  EXPECT(background_threads(&task) == 0, "a second thread started one though it is `off`");
  EXPECT(ts_option_set("BACKGROUND", "auto") == 0 && background_threads_until(1) == 1,
         "a process that had a second thread has none");
}

static void* allocate_later(void* unused) {
  free(opaque_pointer(malloc(100)));
  idle(100);
  return unused;
}

static void need_much_stack(void) {
  char room[512 << 10];
  memset(room, 1, sizeof room);
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  if (sigismember(&blocked, SIGTERM) != 0 || ((char*)opaque_pointer(room))[1000] != 1) _exit(3);
}

static void take_all_keys(void) {
  for (pthread_key_t key; pthread_key_create(&key, NULL) == 0;) continue;
}

static void* free_when_late(void* p) {
  free(p);
  return NULL;
}

// First allocates in the last round of destructors, after which the end is not announced.
static pthread_key_t rounds;
static void allocate_in_last_round(void* round) {
  const uintptr_t next = (uintptr_t)round + 1;
  if (next <= PTHREAD_DESTRUCTOR_ITERATIONS) pthread_setspecific(rounds, (void*)next);
  if (next > PTHREAD_DESTRUCTOR_ITERATIONS) free(opaque_pointer(malloc(100)));
}
static void* end_in_rounds(void* unused) {
  pthread_setspecific(rounds, (void*)1);
  return unused;
}

// The last thread is the first one while the background thread sleeps, or another one after it, in
// a program that has or has not used up all keys; or one that has only freed. Or its end is not
// announced.
typedef enum {
  first_thread,
  later_thread,
  thread_without_keys,
  thread_that_frees,
  untold_thread,
  last_threads
} Last;

static void end_by_pthread_exit(Last last) {
  run_thread(allocate, NULL);
  REQUIRE(background_threads_until(1) == 1, "there is none");
  idle(500);
  REQUIRE(atexit(need_much_stack) == 0, "atexit failed");
  if (last == untold_thread) {
    REQUIRE(pthread_key_create(&rounds, allocate_in_last_round) == 0, "no key");
    run_thread(end_in_rounds, NULL);
  } else if (last == thread_that_frees) {
    start_thread(free_when_late, malloc(100));
  } else if (last != first_thread) {
    start_thread(allocate_later, NULL);
  }
  if (last == thread_without_keys) {
    idle(50);
    take_all_keys();
  }
  pthread_exit(NULL);
}

CHECK("the process ends with its last thread") {
  for (Last last = first_thread; last < last_threads; ++last) {
    const pid_t child = fork();
    if (child == 0) end_by_pthread_exit(last);
    int status = -1;
    for (unsigned waited = 0; waited < 20000 && waitpid(child, &status, WNOHANG) == 0; waited += 10)
      idle(10);
    if (status == -1) {
      kill(child, SIGKILL);
      waitpid(child, NULL, 0);
    }
    EXPECT(status == 0, "%d: a process whose threads have ended is there, or has status %d", last,
           status);
  }
}

static void* change_it(void* unused) {
  for (int i = 0; i < 2000; ++i) {
    ts_option_set("BACKGROUND", i % 2 == 0 ? "off" : "on");
    free(opaque_pointer(malloc(100000)));
  }
  return unused;
}

CHECK("it follows the last change") {
  pthread_t thread[4];
  for (int round = 0; round < 3; ++round) {
    start_threads(thread, COUNT_OF(thread), change_it);
    join_threads(thread, COUNT_OF(thread));
    ts_option_set("BACKGROUND", "off");
    EXPECT(background_threads_until(0) == 0, "there is one after `off`");
    ts_option_set("BACKGROUND", "on");
    EXPECT(background_threads_until(1) == 1, "there is none after `on`");
  }
}
