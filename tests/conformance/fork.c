// fork: the child of a threaded process may start threads and run fork handlers that allocate, and
// the parent goes on. What a child finds of the other threads' blocks, whether it forks again and
// execs, and what forks lose is reliability/fork_in_threaded_program.c.
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { workers = 3 };

static atomic_bool stop;
// Blocks that pass from any thread to any other.
static _Atomic(void*) exchange[64];

static void* work(void* argument) {
  uint64_t random = (uint64_t)(uintptr_t)argument;
  while (!atomic_load(&stop)) {
    const size_t bytes = 8 + random_size(&random, 40000);
    char* block = malloc(bytes);
    REQUIRE(block != NULL, "null");
    memset(block, 1, bytes < 256 ? bytes : 256);
    free(atomic_exchange(&exchange[next_random(&random) % COUNT_OF(exchange)], block));
  }
  return NULL;
}

static pthread_t worker[workers];

static void start_workers(void) {
  for (size_t i = 0; i < workers; ++i) {
    const int error = pthread_create(&worker[i], NULL, work, (void*)(uintptr_t)(i + 1));
    REQUIRE(error == 0, "pthread_create: %s", strerror(error));
  }
}

static void stop_workers(void) {
  atomic_store(&stop, true);
  for (size_t i = 0; i < workers; ++i) pthread_join(worker[i], NULL);
}

// Returns what a child that calls `body` exits with, or 128 plus the signal that ended it.
static int status_of_child(void (*body)(void)) {
  const pid_t child = fork();
  REQUIRE(child >= 0, "fork: %s", strerror(errno));
  if (child == 0) {
    alarm(20);  // not inherited from the parent
    body();
    _exit(check_has_failed() ? 1 : 0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child, "waitpid: %s", strerror(errno));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void allocate_much(void) {
  void* block[500];
  uint64_t random = 5;
  for (size_t i = 0; i < COUNT_OF(block); ++i) {
    const size_t bytes = random_size(&random, 100000);
    block[i] = malloc(bytes);
    REQUIRE(block[i] != NULL, "malloc(%zu) is null in the child", bytes);
    memset(block[i], 2, bytes < 256 ? bytes : 256);
  }
  for (size_t i = 0; i < COUNT_OF(block); ++i) free(block[i]);
  for (size_t i = 0; i < COUNT_OF(exchange); ++i) free(atomic_exchange(&exchange[i], NULL));
}

static void expect_child(void (*body)(void), int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const int status = status_of_child(body);
    EXPECT(status == 0, "child %d ended with %d%s", i, status,
           status == 128 + 14 ? ": it hung" : "");
    if (check_has_failed()) break;
  }
}

static void* allocate_in_thread(void* argument) {
  allocate_much();
  return argument;
}

static void start_threads(void) {
  pthread_t thread[3];
  for (size_t i = 0; i < COUNT_OF(thread); ++i) {
    const int error = pthread_create(&thread[i], NULL, allocate_in_thread, NULL);
    REQUIRE(error == 0, "pthread_create in the child: %s", strerror(error));
  }
  for (size_t i = 0; i < COUNT_OF(thread); ++i) pthread_join(thread[i], NULL);
}

CHECK("the child starts threads that allocate") {
  start_workers();
  expect_child(start_threads, 15);
  stop_workers();
}

// A program's own fork handlers may allocate, on both sides; they may even be older than the
// allocator's.
static void allocate_in_handler(void) {
  void* block[20];
  for (size_t i = 0; i < COUNT_OF(block); ++i) {
    block[i] = malloc(i * 100);
    REQUIRE(block[i] != NULL, "malloc is null in a fork handler");
  }
  for (size_t i = 0; i < COUNT_OF(block); ++i) free(block[i]);
}

static bool early_handlers_wanted;

static void register_early_handlers(int argc, char** argv, char** environment) {
  (void)environment;
  early_handlers_wanted =
      argc > 1 && strcmp(argv[1], "the program's oldest fork handlers allocate") == 0;
  if (early_handlers_wanted)
    pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler);
}
__attribute__((section(".preinit_array"),
               used)) static void (*const before_constructors)(int, char**,
                                                               char**) = register_early_handlers;

CHECK("the program's oldest fork handlers allocate") {
  need_glibc("the C library runs no .preinit_array");
  REQUIRE(early_handlers_wanted, ".preinit_array did not run");
  start_workers();
  expect_child(allocate_much, 15);
  stop_workers();
}

CHECK("the program's fork handlers allocate") {
  REQUIRE(pthread_atfork(allocate_in_handler, allocate_in_handler, allocate_in_handler) == 0,
          "pthread_atfork failed");
  start_workers();
  expect_child(allocate_much, 15);
  stop_workers();
}

CHECK("the parent goes on") {
  char* block[200];
  for (int round = 0; round < 10; ++round) {
    for (size_t i = 0; i < COUNT_OF(block); ++i) {
      block[i] = malloc(1000);
      REQUIRE(block[i] != NULL, "null");
      fill(block[i], 1000, i);
    }
    expect_child(allocate_much, 1);
    for (size_t i = 0; i < COUNT_OF(block); ++i) {
      EXPECT(first_damage(block[i], 1000, i) == 1000, "a child changed its parent's memory");
      free(block[i]);
    }
  }
}
