// A C program with the engine linked in: the program, and libc within it, allocate only from the
// engine. It knows tsmalloc, unlike the conformance programs, which are linked in the same ways
// (CMakeLists.txt).
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

size_t malloc_good_size(size_t bytes);
void* __libc_malloc(size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* block);

// The program's own function, with a name that the engine also uses but no standard reserves.
size_t nallocx(size_t bytes, int flags);
size_t nallocx(size_t bytes, int flags) { return bytes + (size_t)flags; }

// libc's malloc has its own sizes, such as 136 bytes for a request of 129.
static void expect_ours(void* block, size_t bytes, const char* origin) {
  REQUIRE(block != NULL, "%s: null", origin);
  EXPECT(malloc_usable_size(block) == malloc_good_size(bytes), "%s: %zu usable bytes, not %zu",
         origin, malloc_usable_size(block), malloc_good_size(bytes));
}

CHECK("the program allocates from it") {
  for (size_t bytes = 1; bytes < 100000; bytes += 1 + bytes / 3) {
    char* block = malloc(bytes);
    expect_ours(block, bytes, "malloc");
    fill(block, bytes, bytes);
    block = realloc(block, 2 * bytes);
    expect_ours(block, 2 * bytes, "realloc");
    EXPECT_FILLED(block, bytes, bytes);
    free(block);
    block = calloc(bytes, 3);
    REQUIRE(block != NULL, "calloc: null");
    for (size_t i = 0; i < 3 * bytes; ++i) REQUIRE(block[i] == 0, "calloc: byte %zu", i);
    free(block);
  }
}

CHECK("libc allocates from it") {
  char text[129];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = '\0';
  char* copy = strdup(text);
  expect_ours(copy, sizeof text, "strdup");
  free(copy);
  copy = reallocarray(NULL, 43, 3);
  expect_ours(copy, 129, "reallocarray");
  free(copy);
  REQUIRE(asprintf(&copy, "%s", text) == sizeof text - 1, "asprintf");
  expect_ours(copy, sizeof text, "asprintf");
  free(copy);
}

CHECK("libc's own names are defined") {
  void* block = __libc_malloc(129);
  expect_ours(block, 129, "__libc_malloc");
  free(block);
  block = __libc_memalign(256, 300);
  EXPECT((uintptr_t)block % 256 == 0, "__libc_memalign(256, 300) is %p", block);
  __libc_free(block);
}

CHECK("the program's own names prevail") {
  EXPECT(nallocx(opaque(129), 1) == 130, "the program's nallocx is not called");
}

CHECK("blocks are aligned") {
  for (size_t alignment = 8; alignment <= 1 << 20; alignment *= 2) {
    void* blocks[3] = {aligned_alloc(alignment, 3 * alignment), memalign(alignment, 100), NULL};
    REQUIRE(posix_memalign(&blocks[2], alignment, 100) == 0, "posix_memalign");
    for (size_t i = 0; i < COUNT_OF(blocks); ++i) {
      EXPECT((uintptr_t)blocks[i] % alignment == 0, "%p, not aligned to %zu", blocks[i], alignment);
      free(blocks[i]);
    }
  }
}

CHECK("the reports are its own") {
  enum { large = 8 << 20 };
  const struct mallinfo2 before = mallinfo2();
  void* block = malloc(large);
  REQUIRE(block != NULL, "null");
  const struct mallinfo2 with = mallinfo2();
  EXPECT(with.uordblks + with.hblkhd >= before.uordblks + before.hblkhd + large,
         "mallinfo2 does not count a block");
  free(block);
  EXPECT((unsigned)malloc_trim(0) <= 1, "malloc_trim is neither 0 nor 1");
  EXPECT(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1, "mallopt refuses M_MMAP_THRESHOLD");
  FILE* stream = fopen("/dev/null", "w");
  REQUIRE(stream != NULL && malloc_info(0, stream) == 0, "malloc_info failed");
  fclose(stream);
}

static atomic_bool stop;

static void* allocate(void* unused) {
  for (size_t bytes = 16; !atomic_load(&stop); bytes = bytes % 40000 + 16)
    free(opaque_pointer(malloc(bytes)));
  return unused;
}

// It starts with a malloc that refills a cache bin, after a second thread has got a heap.
CHECK("a program with threads has a background thread") {
  const pthread_t thread = start_thread(allocate, NULL);
  bool has = false;
  for (size_t i = 0; i < 1000 && !has; ++i) {
    for (size_t bytes = 16; bytes < 40000; bytes += 16) free(opaque_pointer(malloc(bytes)));
    usleep(1000);
    has = threads_named("tsmalloc", NULL) != 0;
  }
  EXPECT(has, "a program of two threads has no background thread");
  atomic_store(&stop, true);
  pthread_join(thread, NULL);
}
