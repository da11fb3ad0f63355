// Fork in a threaded program. The child of a process with 64 threads allocates at once, also in
// threads of its own, forks again and execs; a thousand forks while eight threads allocate do not
// hang, and a child loses no memory except what a thread was changing at that moment. The program's
// fork handlers may allocate.
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

// Blocks passed from any thread to any other; each begins with its length.
enum { places = 256 };
static _Atomic(void*) place[places];
static atomic_bool stop;

// The blocks of a thread: a block that it fills, and one that it checks.
enum { most_workers = 64 };
static _Atomic(void*) in_hand[most_workers][2];

// By every function of the family that returns a block.
static void* get_block(size_t bytes, uint64_t how) {
  switch (how) {
    case 0:
      return calloc(1, bytes);
    case 1:
      return realloc(malloc(bytes / 2 + 1), bytes);
    case 2:
      return aligned_alloc(64, (bytes + 63) / 64 * 64);
    default:
      return malloc(bytes);
  }
}

static void* make_block(uint64_t* random, _Atomic(void*)* hand) {
  const size_t bytes =
      sizeof bytes + random_size(random, next_random(random) % 32 == 0 ? 300000 : 3000);
  char* const block = get_block(bytes, next_random(random) % 4);
  if (hand != NULL) atomic_store(hand, block);
  REQUIRE(block != NULL, "a request of %zu bytes is null", bytes);
  memcpy(block, &bytes, sizeof bytes);
  fill(block + sizeof bytes, bytes - sizeof bytes, bytes);
  return block;
}

static size_t check_block(const char* block) {
  size_t bytes = 0;
  memcpy(&bytes, block, sizeof bytes);
  REQUIRE(bytes >= sizeof bytes && bytes <= 400000, "a block's length is %zu", bytes);
  const size_t rest = bytes - sizeof bytes;
  EXPECT_FILLED(block + sizeof bytes, rest, bytes);
  return bytes;
}

static void drop_block(void* block) {
  if (block == NULL) return;
  check_block(block);
  free(block);
}

// While a child runs, the workers rest: it has memory of its own, and needs the processor.
static atomic_bool is_resting;
static pthread_mutex_t rest = PTHREAD_MUTEX_INITIALIZER;
static atomic_size_t steps;

static void* work(void* argument) {
  uint64_t random = (uint64_t)(uintptr_t)argument;
  _Atomic(void*)* const hand = in_hand[(size_t)argument - 1];
  while (!atomic_load(&stop)) {
    void* const made = make_block(&random, &hand[0]);
    atomic_store(&hand[0], NULL);  // before others may free it
    void* const found = atomic_exchange(&place[next_random(&random) % places], made);
    atomic_store(&hand[1], found);
    if (found != NULL) check_block(found);
    atomic_store(&hand[1], NULL);
    free(found);
    atomic_fetch_add(&steps, 1);
    if (!atomic_load(&is_resting)) continue;
    pthread_mutex_lock(&rest);
    pthread_mutex_unlock(&rest);
  }
  return NULL;
}

static pthread_t worker[most_workers];

static void start_workers(size_t count) {
  for (size_t i = 0; i < count; ++i)
    worker[i] = start_thread_on_stack(256 << 10, work, (void*)(uintptr_t)(i + 1));
}

// Forks while the workers work, each about ten steps further than at the previous fork. Then they
// rest until end_rest().
static pid_t fork_amid(size_t workers) {
  const size_t enough = atomic_load(&steps) + 10 * workers;
  while (atomic_load(&steps) < enough) usleep(100);
  const pid_t child = fork();
  if (child != 0) {
    pthread_mutex_lock(&rest);
    atomic_store(&is_resting, true);
  }
  return child;
}

static void end_rest(void) {
  atomic_store(&is_resting, false);
  pthread_mutex_unlock(&rest);
}

static void stop_workers(size_t count) {
  atomic_store(&stop, true);
  join_threads(worker, count);
}

// Frees what the parent's threads had made.
static void drop_all_inherited(void) {
  for (size_t i = 0; i < places; ++i) drop_block(atomic_exchange(&place[i], NULL));
  for (size_t i = 0; i < 2 * most_workers; ++i) free(atomic_exchange(&in_hand[i / 2][i % 2], NULL));
}

static void allocate_much(void) {
  uint64_t random = 5;
  void* block[300];
  for (size_t i = 0; i < COUNT_OF(block); ++i) block[i] = make_block(&random, NULL);
  for (size_t i = 0; i < COUNT_OF(block); ++i) drop_block(block[i]);
}

static void* allocate_much_there(void* unused) {
  allocate_much();
  return unused;
}

static void expect_end(pid_t child, size_t number) {
  const int status = status_of(child);
  EXPECT(status == 0, "child %zu ended with wait status %d%s", number, status,
         WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? ": it hung" : "");
}

CHECK("the child of 64 threads allocates, forks again and execs") {
  const size_t forks = check_is_long() ? 500 : 10;
  start_workers(most_workers);
  for (size_t i = 0; i < forks && !check_has_failed(); ++i) {
    const pid_t child = fork_amid(most_workers);
    if (child == 0) {
      alarm(20);
      allocate_much();
      drop_all_inherited();
      if (i % 4 == 0) run_thread(allocate_much_there, NULL);
      const pid_t grandchild = fork();
      if (grandchild == 0) {
        alarm(20);
        allocate_much();
        execl(TRUE_PROGRAM, "true", (char*)NULL);
        _exit(2);
      }
      expect_end(grandchild, i);
      end_check();
    }
    expect_end(child, i);
    end_rest();
  }
  stop_workers(most_workers);
}

enum { drill_workers = 8 };

// Forks while threads allocate; each child does this.
static void fork_often(void (*body)(void)) {
  start_workers(drill_workers);
  for (size_t i = 0; i < 15 && !check_has_failed(); ++i) {
    const pid_t child = fork_amid(drill_workers);
    if (child == 0) {
      alarm(20);
      body();
      end_check();
    }
    expect_end(child, i);
    end_rest();
  }
  stop_workers(drill_workers);
}

// As the check that is run asks: before all constructors, or in the first one, which still comes
// after that of an engine that is linked in.
static bool has_early_handlers;
#ifdef __GLIBC__  // others pass a constructor no arguments
static void register_early(int argc, char** argv, const char* when) {
  if (argc < 2 || strstr(argv[1], when) == NULL) return;
  has_early_handlers = pthread_atfork(allocate_much, allocate_much, allocate_much) == 0;
}
static void before_all(int argc, char** argv, char** environment) {
  (void)environment;
  register_early(argc, argv, "oldest fork handlers");
}
__attribute__((section(".preinit_array"),
               used)) static void (*const before_constructors)(int, char**, char**) = before_all;
__attribute__((constructor(101))) static void first_constructor(int argc, char** argv) {
  register_early(argc, argv, "first constructor");
}
#endif

// These handlers are older than the allocator's.
CHECK("the program's oldest fork handlers allocate") {
  need_glibc("the C library runs no .preinit_array");
  REQUIRE(has_early_handlers, ".preinit_array did not run");
  fork_often(drop_all_inherited);
}

CHECK("fork handlers of the program's first constructor allocate") {
  need_glibc("the C library passes a constructor no arguments");
  REQUIRE(has_early_handlers, "the constructor did not run");
  fork_often(drop_all_inherited);
}

CHECK("the program's fork handlers allocate") {
  REQUIRE(pthread_atfork(allocate_much, allocate_much, allocate_much) == 0, "pthread_atfork");
  fork_often(drop_all_inherited);
}

// Bytes in use as the tested allocator counts them; SIZE_MAX if it does not count.
static size_t bytes_in_use(void) {
  if (!library_has("mallinfo2")) return SIZE_MAX;
  struct mallinfo2 (*const info)(void) = (struct mallinfo2(*)(void))find_function("mallinfo2");
  const struct mallinfo2 all = info();
  return all.uordblks + all.hblkhd;
}

// Bytes in use after the child has freed the blocks of all threads.
static size_t lost_in_child(size_t workers) {
  int ends[2];
  REQUIRE(pipe(ends) == 0, "pipe: %s", strerror(errno));
  const pid_t child = fork_amid(workers);
  if (child == 0) {
    alarm(20);
    drop_all_inherited();
    malloc_trim(0);
    const size_t lost = bytes_in_use();
    allocate_much();
    _exit(write(ends[1], &lost, sizeof lost) == sizeof lost && !check_has_failed() ? 0 : 1);
  }
  close(ends[1]);
  size_t lost = 0;
  REQUIRE(read(ends[0], &lost, sizeof lost) == sizeof lost, "the child says nothing");
  close(ends[0]);
  expect_end(child, 0);
  end_rest();
  return lost;
}

static int compare_sizes(const void* a, const void* b) {
  const size_t left = *(const size_t*)a;
  const size_t right = *(const size_t*)b;
  return (left > right) - (left < right);
}

CHECK("forks amid threads that allocate lose little") {
  enum { most_forks = 1000 };
  static size_t lost[most_forks];
  const size_t forks = check_is_long() ? most_forks : 50;
  const size_t before = lost_in_child(0);  // what the C library itself has in use
  start_workers(drill_workers);
  for (size_t i = 0; i < forks && !check_has_failed(); ++i) lost[i] = lost_in_child(drill_workers);
  stop_workers(drill_workers);
  if (before == SIZE_MAX) {
    report_figure("%zu forks without a hang; the allocator does not say what is in use", forks);
    return;
  }
  qsort(lost, forks, sizeof *lost, compare_sizes);
  const size_t median = lost[forks / 2] - before;
  const size_t most = lost[forks - 1] - before;
  report_figure("%zu forks without a hang; children lost %zu bytes (median), %zu at most", forks,
                median, most);
  // Bounded by what threads can set aside.
  EXPECT(median <= (size_t)drill_workers << 18, "half of the children lost %zu bytes", median);
  EXPECT(most <= (size_t)drill_workers << 20, "a child lost %zu bytes", most);
}

// What a stream does to text: it allocates, as a compressing or encrypting stream may.
static ssize_t write_away(void* unused, const char* text, size_t bytes) {
  (void)unused;
  (void)text;
  for (size_t i = 0; i < 4; ++i) free(opaque_pointer(malloc(opaque(100000 + i * 50000))));
  return (ssize_t)bytes;
}

// fflush(NULL) holds the lock of the C library's stream list meanwhile, and fork needs that lock
// too.
static void* flush_all_streams(void* unused) {
  FILE* const stream = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_away});
  REQUIRE(stream != NULL, "fopencookie: %s", strerror(errno));
  while (!atomic_load(&stop)) {
    fputs("text", stream);
    fflush(NULL);
  }
  fclose(stream);
  return unused;
}

CHECK("a fork waits for no thread that waits for it") {
  need_glibc("its lock of the list of streams has no name that an allocator could hold");
  const pthread_t thread = start_thread(flush_all_streams, NULL);
  alarm(60);
  const int forks = check_is_long() ? 1000 : 200;
  for (int i = 0; i < forks; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      free(opaque_pointer(malloc(opaque(200000))));
      fflush(NULL);
      _exit(0);
    }
    expect_end(child, 0);
  }
  atomic_store(&stop, true);
  pthread_join(thread, NULL);
}

static volatile sig_atomic_t forks_in_handler;

// (A processor-time timer would fire only at kernel ticks.)
static timer_t timer;

static void interrupt_soon(void) {
  const struct itimerspec soon = {.it_value = {0, 50000 + forks_in_handler * 7919 % 400000}};
  timer_settime(timer, 0, &soon, NULL);
}

static void fork_in_handler(int signal) {
  (void)signal;
  const int error = errno;
  const pid_t child = fork();
  if (child == 0) _exit(0);
  int status = 0;
  if (child > 0 && waitpid(child, &status, 0) == child && status == 0) ++forks_in_handler;
  interrupt_soon();
  errno = error;
}

// POSIX allowed fork in a signal handler until 2024, and crash reporters still do it. With several
// threads this may hang: the owner of a lock is unknown.
CHECK("a signal handler of a process of one thread forks") {
  if (library_is_ours() && !library_is_engine() && !library_is_hardened())
    skip_check("the classic heaps' locks do not know who has them");
  need_glibc("an allocator is not told that there is one thread");
  struct sigaction action = {.sa_handler = fork_in_handler, .sa_flags = SA_RESTART};
  REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction: %s", strerror(errno));
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  REQUIRE(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0, "timer_create: %s", strerror(errno));
  alarm(60);
  interrupt_soon();
  static void* blocks[64];
  uint64_t random = 7;
  const int forks = check_is_long() ? 500 : 150;
  while (forks_in_handler < forks) {
    void** const own = &blocks[next_random(&random) % COUNT_OF(blocks)];
    free(*own);
    *own = malloc(opaque(40000 + random_size(&random, 400000)));
    EXPECT(*own != NULL, "malloc is null");
  }
  timer_delete(timer);
}
