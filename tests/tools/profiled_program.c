/* A program whose call sites allocate known amounts, for test_profile.py.
 *
 *     profiled_program WHAT...     what to do, one after another; then it prints "ready". "wait" does
 *                                  so and waits for a signal
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* From the library, if there is one. */
extern int ts_profile_start(size_t interval) __attribute__((weak));
extern int ts_profile_write(int descriptor, int what) __attribute__((weak));

#define SITE __attribute__((noinline, noclone))

enum { many = 2000 };
static void* kept[64 * many];
static int kept_count;

SITE void* keeps_small(void) { return kept[kept_count++] = memset(malloc(100), 1, 100); }
SITE void* keeps_odd(int i) { return kept[kept_count++] = memset(malloc(1 + i % 1000), 1, 1); }
SITE void* keeps_large(void) { return kept[kept_count++] = memset(malloc(100000), 1, 100); }
SITE void* keeps_zeroed(void) { return kept[kept_count++] = calloc(3, 1000); }
SITE void* keeps_grown(void) {
  return kept[kept_count++] = realloc(realloc(malloc(10), 700), 70000);
}
SITE void* keeps_aligned(void) { return kept[kept_count++] = aligned_alloc(256, 512); }
SITE void frees_at_once(void) {
  char* volatile block = malloc(200);
  free(block);
}

static void everything(void) {
  for (int i = 0; i < many; ++i) {
    keeps_small();
    frees_at_once();
    keeps_odd(i);
    if (i % 10 != 0) continue;
    keeps_large();
    keeps_zeroed();
    keeps_grown();
    keeps_aligned();
  }
}

/* More than 60 MB, in a thread with little stack left. */
SITE int keeps_much(int depth) {
  volatile char room[256];
  room[0] = (char)depth;
  if (depth != 0) return keeps_much(depth - 1) + room[0];
  for (int i = 0; i < 600; ++i) keeps_large();
  for (int i = 0; i < 100; ++i) keeps_small();
  return 0;
}
static void* much(void* nothing) {
  keeps_much(10);
  return nothing;
}
static void on_a_small_stack(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 16384);
  pthread_t thread;
  if (pthread_create(&thread, &attributes, much, NULL) != 0) abort();
  pthread_join(thread, NULL);
}

/* One in sixteen of 300,000 blocks of 200 bytes stays, and keeps the slabs. */
SITE void* pins(void) { return memset(malloc(200), 1, 200); }
SITE void* passes(void) { return memset(malloc(200), 1, 200); }
static void pin(void) {
  enum { blocks = 300000 };
  static void* passing[blocks];
  for (int i = 0; i < blocks; ++i) {
    if (i % 16 == 0)
      pins();
    else
      passing[i] = passes();
  }
  for (int i = 0; i < blocks; ++i) free(passing[i]);
}

static void* in_thread(void* unused) {
  (void)unused;
  void* volatile first = malloc(1); /* what a thread's first malloc brings along is counted here */
  free(first);
  for (int i = 0; i < many; ++i) frees_at_once();
  return NULL;
}

/* Leaks about 10 MB a second, until standard input ends. */
SITE void* leaks(void) { return memset(malloc(1000), 1, 1000); }
static void* churns(void* unused) {
  (void)unused;
  for (;;) {
    void* blocks[100];
    for (int i = 0; i < 100; ++i) blocks[i] = malloc(500);
    for (int i = 0; i < 100; ++i) free(blocks[i]);
    usleep(500);
  }
}
static void serve(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, churns, NULL);
  printf("ready\n");
  fflush(stdout);
  for (;;) {
    for (int i = 0; i < 100; ++i) leaks();
    usleep(10000);
  }
}

/* Ends by raise(3) or _exit(2) in another thread, after the first one has ended by itself. */
static void* outlives(void* unused) {
  (void)unused;
  usleep(300000);
  for (int i = 0; i < many; ++i) keeps_small();
  _exit(5);
}
static void end_first_thread(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, outlives, NULL);
  pthread_exit(NULL);
}

/* Exits a while after the first SIGTERM, and prints how many came. */
static volatile sig_atomic_t terms;
static void count_term(int signal) { terms += signal == SIGTERM; }
static void wait_for_terms(void) {
  signal(SIGTERM, count_term);
  printf("ready\n");
  fflush(stdout);
  while (terms == 0) usleep(1000);
  for (int i = 0; i < 500; ++i) usleep(1000);
  printf("%d\n", (int)terms);
  exit(0);
}

int main(int count, char** words) {
  for (int i = 1; i < count; ++i) {
    if (strcmp(words[i], "everything") == 0) everything();
    if (strcmp(words[i], "start") == 0 && ts_profile_start(16384) != 0) return 1;
    if (strcmp(words[i], "serve") == 0) serve();
    if (strcmp(words[i], "pin") == 0) pin();
    if (strcmp(words[i], "sleep") == 0) sleep(1);
    if (strcmp(words[i], "write") == 0 &&
        ts_profile_write(open("tsmalloc.own.pb", O_WRONLY | O_CREAT, 0600), 0) != 0)
      return 1;
    if (strcmp(words[i], "wait") == 0) {
      printf("ready\n");
      fflush(stdout);
      pause();
    }
    if (strcmp(words[i], "free") == 0)
      while (kept_count > 0) free(kept[--kept_count]);
    if (strcmp(words[i], "thread") == 0) {
      pthread_t thread;
      pthread_create(&thread, NULL, in_thread, NULL);
      pthread_join(thread, NULL);
    }
    if (strcmp(words[i], "small-stack") == 0) on_a_small_stack();
    if (strncmp(words[i], "raise-", 6) == 0) raise(atoi(words[i] + 6));
    if (strcmp(words[i], "_exit") == 0) _exit(3);
    if (strcmp(words[i], "end-first-thread") == 0) end_first_thread();
    if (strcmp(words[i], "count-terms") == 0) wait_for_terms();
    if (strcmp(words[i], "vfork") == 0) {
      if (vfork() == 0) _exit(0);
      wait(NULL);
    }
    if (strcmp(words[i], "daemon") == 0) {
      if (fork() != 0) exit(0);
      setsid();
      close(STDOUT_FILENO);
      close(STDERR_FILENO);
      sleep(30);
    }
    if (strcmp(words[i], "fork") == 0) {
      fflush(stdout);
      if (fork() == 0) {
        keeps_small();
        exit(0);
      }
      wait(NULL);
    }
  }
  printf("ready\n");
  return 0;
}
