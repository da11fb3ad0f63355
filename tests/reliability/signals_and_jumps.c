// Signals that interrupt allocating threads: their handlers do what is allowed in them, or jump out
// of a blocking system call, never out of an allocation. Memory stays intact and does not grow.
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum { threads = 4 };

static atomic_uint handled;
static atomic_uint jumps;
static atomic_bool stop;

typedef struct Waiter {
  sigjmp_buf back;
  volatile sig_atomic_t may_jump;
} Waiter;
static _Thread_local Waiter waiter;

// Only what signal-safety(7) allows; errno belongs to the interrupted thread.
static void handle(int number) {
  (void)number;
  const int kept = errno;
  atomic_fetch_add(&handled, 1);
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (getpid() < 0) _exit(3);
  if (waiter.may_jump) {
    waiter.may_jump = 0;
    atomic_fetch_add(&jumps, 1);
    siglongjmp(waiter.back, 1);
  }
  errno = kept;
}

static void block_until_a_jump(void) {
  if (sigsetjmp(waiter.back, 1) != 0) return;
  waiter.may_jump = 1;
  nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
  waiter.may_jump = 0;
}

typedef struct Piece {
  char* begin;
  size_t bytes;
} Piece;

static void replace(Piece* piece, uint64_t* random) {
  EXPECT_FILLED(piece->begin, piece->bytes, piece->bytes);
  const size_t bytes = random_size(random, next_random(random) % 64 == 0 ? 6 << 20 : 20000);
  if (next_random(random) % 4 == 0) {
    piece->begin = realloc(piece->begin, bytes + 1);
  } else {
    free(piece->begin);
    piece->begin = malloc(bytes + 1);
  }
  REQUIRE(piece->begin != NULL, "no memory for %zu bytes", bytes);
  piece->bytes = bytes < 3000 ? bytes : 3000;
  fill(piece->begin, piece->bytes, piece->bytes);
}

static void* churn(void* argument) {
  static _Thread_local Piece piece[64];
  uint64_t random = (uint64_t)(uintptr_t)argument;
  for (unsigned step = 1; !atomic_load(&stop); ++step) {
    replace(&piece[next_random(&random) % COUNT_OF(piece)], &random);
    if (step % 128 == 0) block_until_a_jump();
  }
  for (size_t i = 0; i < COUNT_OF(piece); ++i) free(piece[i].begin);
  return NULL;
}

CHECK("threads that signals interrupt hold what they held") {
  struct sigaction action = {.sa_handler = handle};
  REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction: %s", strerror(errno));
  REQUIRE(sigaction(SIGPROF, &action, NULL) == 0, "sigaction: %s", strerror(errno));
  const struct itimerval often = {{0, 300}, {0, 300}};
  setitimer(ITIMER_PROF, &often, NULL);
  pthread_t thread[threads];
  start_threads(thread, threads, churn);
  const size_t rounds = check_is_long() ? 600000 : 1000;
  size_t early = 0;
  for (size_t i = 0; i < rounds; ++i) {
    for (size_t t = 0; t < threads; ++t) pthread_kill(thread[t], SIGUSR1);
    nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    if (i == rounds / 3) early = resident_bytes();
  }
  const size_t late = resident_bytes();
  atomic_store(&stop, true);
  join_threads(thread, threads);
  setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
  report_figure("%u signals, %u jumps; %zu KiB resident early, %zu KiB late", atomic_load(&handled),
                atomic_load(&jumps), early >> 10, late >> 10);
  EXPECT(atomic_load(&jumps) != 0, "no handler has jumped");
  // What threads hold varies with their random draws, and worst fit leaves ever more small pieces.
  const bool may_grow = strstr(tested_library(), "-worst") != NULL;
  EXPECT(may_grow || late <= early * 2 + (16 << 20), "%zu bytes became %zu", early, late);
}
