// A program using libc's malloc loads the shared library at run time and uses it alongside: static
// thread-local storage is left for it, threads older than it get a heap, and what it keeps in
// threads and fork handlers outlives dlclose.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static struct {
  void* handle;
  void* (*malloc)(size_t);
  void* (*calloc)(size_t, size_t);
  void* (*realloc)(void*, size_t);
  void* (*aligned_alloc)(size_t, size_t);
  void (*free)(void*);
  size_t (*malloc_usable_size)(void*);
} loaded;

static void* symbol(const char* name) {
  void* const address = dlsym(loaded.handle, name);
  REQUIRE(address != NULL, "dlsym: %s", dlerror());
  return address;
}

static void load(void) {
  loaded.handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(loaded.handle != NULL, "dlopen: %s", dlerror());
  loaded.malloc = (void* (*)(size_t))symbol("malloc");
  loaded.calloc = (void* (*)(size_t, size_t))symbol("calloc");
  loaded.realloc = (void* (*)(void*, size_t))symbol("realloc");
  loaded.aligned_alloc = (void* (*)(size_t, size_t))symbol("aligned_alloc");
  loaded.free = (void (*)(void*))symbol("free");
  loaded.malloc_usable_size = (size_t(*)(void*))symbol("malloc_usable_size");
  REQUIRE(loaded.malloc != malloc, "the program's malloc is the library's already");
}

// Blocks of the library passed from any thread to any other; each begins with its length.
static _Atomic(void*) exchange[64];

static void work(uint64_t seed, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    const size_t bytes = sizeof bytes + random_size(&seed, 40000);
    const size_t alignment = (size_t)16 << next_random(&seed) % 6;
    char* block = i % 3 == 0   ? loaded.malloc(bytes)
                  : i % 3 == 1 ? loaded.calloc(1, bytes)
                               : loaded.aligned_alloc(alignment, bytes);
    REQUIRE(block != NULL, "null");
    if (i % 3 == 1) {
      for (size_t at = 0; at < bytes; ++at) REQUIRE(block[at] == 0, "calloc: byte %zu", at);
    }
    EXPECT(i % 3 != 2 || (uintptr_t)block % alignment == 0, "%p, not aligned", (void*)block);
    memcpy(block, &bytes, sizeof bytes);
    fill(block + sizeof bytes, bytes - sizeof bytes, bytes);
    char* other = atomic_exchange(&exchange[next_random(&seed) % COUNT_OF(exchange)], block);
    if (other == NULL) continue;
    size_t length = 0;
    memcpy(&length, other, sizeof length);
    REQUIRE(length <= loaded.malloc_usable_size(other), "a block changed on its way");
    other = loaded.realloc(other, length + (size_t)(i % 100) * 10);
    REQUIRE(other != NULL, "null");
    EXPECT_FILLED(other + sizeof length, length - sizeof length, length);
    loaded.free(other);
    free(malloc(bytes));  // libc's
  }
}

static pthread_barrier_t barrier;  // the library is loaded; it was closed

static void* work_before_and_after_close(void* argument) {
  pthread_barrier_wait(&barrier);
  work((uintptr_t)argument, 2000);
  pthread_barrier_wait(&barrier);
  work((uintptr_t)argument + 100, 2000);
  return NULL;
}

static void* work_once(void* argument) {
  work((uintptr_t)argument, 1000);
  return NULL;
}

static void start_and_join(size_t seed) {
  pthread_t thread[4];
  for (size_t i = 0; i < COUNT_OF(thread); ++i)
    thread[i] = start_thread(work_once, (void*)(seed + i));
  join_threads(thread, COUNT_OF(thread));
}

static void fork_and_wait(void) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    work(7, 500);
    start_and_join(8);
    end_check();
  }
  const int status = status_of(child);
  EXPECT(status == 0, "the child ended with status %#x", (unsigned)status);
}

static void use_it_beside_libcs(void) {
  pthread_t old[4];
  pthread_barrier_init(&barrier, NULL, COUNT_OF(old) + 1);
  start_threads(old, COUNT_OF(old), work_before_and_after_close);
  load();
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < 10; ++i) fork_and_wait();
  start_and_join(50);
  EXPECT(dlclose(loaded.handle) == 0, "dlclose: %s", dlerror());
  pthread_barrier_wait(&barrier);
  for (int i = 0; i < 10; ++i) fork_and_wait();
  start_and_join(60);
  join_threads(old, COUNT_OF(old));
  void* (*const before)(size_t) = loaded.malloc;
  load();
  EXPECT(loaded.malloc == before, "it was unloaded, and loaded again elsewhere");
}

CHECK("threads, forks and dlclose") { use_it_beside_libcs(); }

CHECK("after many libraries with thread-local storage") {
  for (int i = 1; i <= OTHER_LIBRARIES; ++i) {
    char path[4096];
    snprintf(path, sizeof path, OTHER_LIBRARY, i);
    void* const other = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(other != NULL, "dlopen: %s", dlerror());
    int (*const count)(void) = (int (*)(void))dlsym(other, "count_calls_of_thread");
    REQUIRE(count != NULL && count() == 1, "library %d has no thread-local storage", i);
  }
  use_it_beside_libcs();
}

// Opens the library, uses it and closes it, again and again.
static void* open_and_close(void* argument) {
  uint64_t random = (uintptr_t)argument;
  for (int round = 0; round < 200; ++round) {
    void* const handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(handle != NULL, "dlopen: %s", dlerror());
    void* (*const allocate)(size_t) = (void* (*)(size_t))dlsym(handle, "malloc");
    void (*const release)(void*) = (void (*)(void*))dlsym(handle, "free");
    void* block[20];
    for (size_t i = 0; i < COUNT_OF(block); ++i) {
      block[i] = allocate(random_size(&random, 100000));
      REQUIRE(block[i] != NULL, "null");
    }
    for (size_t i = 0; i < COUNT_OF(block); ++i) release(block[i]);
    EXPECT(dlclose(handle) == 0, "dlclose: %s", dlerror());
  }
  return NULL;
}

CHECK("threads that open and close it again and again") {
  size_t early = 0;
  for (size_t round = 0; round < 10; ++round) {
    pthread_t thread[4];
    for (size_t i = 0; i < COUNT_OF(thread); ++i)
      thread[i] = start_thread(open_and_close, (void*)(round * 4 + i + 1));
    join_threads(thread, COUNT_OF(thread));
    if (round == 1) early = resident_bytes();
  }
  EXPECT(resident_bytes() < early + (4 << 20), "%zu bytes became %zu", early, resident_bytes());
}
