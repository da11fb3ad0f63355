// Threads that end while they hold memory, and destructors that run when the allocator's own
// per-thread state is gone. (torture.c tests threads that free each other's blocks.)
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static void* allocate_and_leave(void* argument) {
  void** kept = argument;
  for (size_t i = 0; i < 100; ++i) kept[i] = filled(100 + i, i);
  return NULL;
}

CHECK("blocks outlive the thread that made them") {
  for (int round = 0; round < 100; ++round) {
    void* kept[100];
    run_thread(allocate_and_leave, kept);
    for (size_t i = 0; i < COUNT_OF(kept); ++i) {
      EXPECT_FILLED(kept[i], 100 + i, i);
      void* moved = realloc(kept[i], 300 + i);
      REQUIRE(moved != NULL, "null");
      EXPECT_FILLED(moved, 100 + i, i);
      free(moved);
    }
  }
}

static void* use_and_free(void* argument) {
  (void)argument;
  enum { blocks = 512, bytes = 4000 };
  void* block[blocks];
  for (size_t i = 0; i < blocks; ++i) block[i] = written(bytes);
  for (size_t i = 0; i < blocks; ++i) free(block[i]);
  return NULL;
}

// POSIX runs destructors again while they set new values, PTHREAD_DESTRUCTOR_ITERATIONS (4) times.
// In the last rounds the allocator's own destructor has already run.
static pthread_key_t keys[3];
static atomic_int destructor_calls;

static void allocate_in_destructor(void* value) {
  atomic_fetch_add(&destructor_calls, 1);
  pthread_key_t key;
  memcpy(&key, value, sizeof key);
  free(value);
  void* scratch[50];
  for (size_t i = 0; i < COUNT_OF(scratch); ++i) scratch[i] = filled(i * 40, i);
  for (size_t i = 0; i < COUNT_OF(scratch); ++i) {
    EXPECT_FILLED(scratch[i], i * 40, i);
    free(scratch[i]);
  }
  void* next = calloc(1, 64);
  REQUIRE(next != NULL, "calloc is null in a destructor");
  memcpy(next, &key, sizeof key);
  pthread_setspecific(key, next);
}

static void* set_keys(void* argument) {
  (void)argument;
  for (size_t i = 0; i < COUNT_OF(keys); ++i) {
    void* value = malloc(64);
    REQUIRE(value != NULL, "null");
    memcpy(value, &keys[i], sizeof keys[i]);
    pthread_setspecific(keys[i], value);
  }
  return NULL;
}

CHECK("thread-exit destructors allocate and free in every round") {
  enum { threads = 50 };
  for (size_t i = 0; i < COUNT_OF(keys); ++i) {
    const int error = pthread_key_create(&keys[i], allocate_in_destructor);
    REQUIRE(error == 0, "pthread_key_create: %s", strerror(error));
  }
  for (int i = 0; i < threads; ++i) run_thread(set_keys, NULL);
  const int expected_calls = threads * (int)COUNT_OF(keys) * PTHREAD_DESTRUCTOR_ITERATIONS;
  EXPECT(atomic_load(&destructor_calls) == expected_calls, "%d calls instead of %d",
         atomic_load(&destructor_calls), expected_calls);
}

// The keys of a program that creates all available keys.
static pthread_key_t all_keys[PTHREAD_KEYS_MAX];
static atomic_int values_destroyed;

static void destroy_value(void* value) {
  EXPECT(*(char*)value == 'v', "a destructor has a value that is no key's");
  free(value);
  atomic_fetch_add(&values_destroyed, 1);
}

static void need_all_keys(void) {
#ifndef __GLIBC__
  skip_check("musl's keys are 128, and an allocator may need one");
#endif
  if (getenv("KEY_KEPT") != NULL) skip_check("the allocator is an object for any C library");
}

static void make_all_keys(void) {
  need_all_keys();
  for (size_t i = 0; i < PTHREAD_KEYS_MAX; ++i) {
    const int error = pthread_key_create(&all_keys[i], destroy_value);
    REQUIRE(error == 0, "key %zu of %d: %s", i + 1, PTHREAD_KEYS_MAX, strerror(error));
  }
  pthread_key_t one_more;
  EXPECT(pthread_key_create(&one_more, NULL) == EAGAIN,
         "there are more than PTHREAD_KEYS_MAX keys");
}

// Sets a value for each third key, which no other thread has seen, and leaves blocks behind.
static void* set_all_keys(void* left) {
  enum { blocks = 1000 };
  for (size_t i = 0; i < PTHREAD_KEYS_MAX; ++i) {
    EXPECT(pthread_getspecific(all_keys[i]) == NULL, "key %zu has a value in a new thread", i);
    if (i % 3 != 0) continue;
    char* const value = malloc(1 + i);
    REQUIRE(value != NULL, "malloc is null");
    *value = 'v';
    REQUIRE(pthread_setspecific(all_keys[i], value) == 0, "pthread_setspecific failed");
  }
  for (size_t i = 0; i < blocks; ++i) free(malloc(i));
  *(void**)left = malloc(300);
  return NULL;
}

static void use_all_keys(void) {
  enum { threads = 20 };
  for (size_t i = 0; i < PTHREAD_KEYS_MAX; ++i)
    EXPECT(pthread_getspecific(all_keys[i]) == NULL, "key %zu begins with a value", i);
  for (int i = 0; i < threads; ++i) {
    void* left = NULL;
    run_thread(set_all_keys, &left);
    REQUIRE(left != NULL, "malloc is null");
    memset(left, 1, 300);
    free(left);
  }
  enum { expected = threads * ((PTHREAD_KEYS_MAX + 2) / 3) };
  EXPECT(atomic_load(&values_destroyed) == expected, "%d values destroyed, not %d",
         atomic_load(&values_destroyed), (int)expected);
}

CHECK("a program makes all keys before its first malloc") {
  make_all_keys();
  use_all_keys();
}

static void* use_and_wait(void* barrier) {
  free(use_and_free(NULL));
  pthread_barrier_wait(barrier);
  pthread_barrier_wait(barrier);
  return use_and_free(NULL);
}

// Threads, including this one, have allocated, so the allocator may already have created a key.
CHECK("a program makes all keys when threads have allocated") {
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, 2);
  void* const block = malloc(100);
  REQUIRE(block != NULL, "malloc is null");
  const pthread_t other = start_thread(use_and_wait, &barrier);
  pthread_barrier_wait(&barrier);
  make_all_keys();
  pthread_barrier_wait(&barrier);
  pthread_join(other, NULL);
  free(block);
  use_all_keys();
}

// The stack that the C library itself and the signal frame need is not ours to reduce: four times
// the POSIX minimum.
CHECK("threads with small stacks") {
  pthread_join(start_thread_on_stack(4 * (size_t)PTHREAD_STACK_MIN, use_and_free, NULL), NULL);
}
