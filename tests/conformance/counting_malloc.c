// Programs whose malloc counts or logs, and calls glibc's __libc_malloc. They leave the other
// functions to the allocator, which must recognize the resulting blocks.
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

extern void* __libc_malloc(size_t bytes) __attribute__((weak));
extern void* __libc_calloc(size_t count, size_t bytes) __attribute__((weak));
extern void* __libc_realloc(void* block, size_t bytes) __attribute__((weak));
extern void __libc_free(void* block) __attribute__((weak));
extern void* __libc_memalign(size_t alignment, size_t bytes) __attribute__((weak));
extern void* __libc_valloc(size_t bytes) __attribute__((weak));
extern void* __libc_pvalloc(size_t bytes) __attribute__((weak));

static atomic_size_t calls;

void* malloc(size_t bytes) {
  atomic_fetch_add(&calls, 1);
  return __libc_malloc(bytes);
}

static void use(void* block, size_t bytes, const char* origin) {
  REQUIRE(block != NULL, "%s(%zu) is null", origin, bytes);
  fill(block, bytes, bytes);
  EXPECT(malloc_usable_size(block) >= bytes, "%s: %zu usable bytes of %zu", origin,
         malloc_usable_size(block), bytes);
  errno = 0;
  char* const larger = realloc(block, 2 * bytes);
  REQUIRE(larger != NULL, "realloc of a block of %s is null, errno %d", origin, errno);
  EXPECT_FILLED(larger, bytes, bytes);
  free(larger);
}

CHECK("blocks of __libc_malloc come to realloc and free") {
  static const size_t sizes[] = {1, 100, 1000, 20000, 300000, 5 << 20};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    const size_t before = atomic_load(&calls);
    use(malloc(sizes[i]), sizes[i], "malloc");
    EXPECT(atomic_load(&calls) > before, "the program's malloc was not called");
    char* const copy = strdup("by libc, which calls the program's malloc");
    use(copy, 16, "strdup");
  }
}

CHECK("each of glibc's own names has its function") {
  use(__libc_malloc(opaque(300)), 300, "__libc_malloc");
  use(__libc_realloc(opaque_pointer(NULL), 300), 300, "__libc_realloc");
  use(__libc_memalign(64, 300), 300, "__libc_memalign");
  use(__libc_valloc(300), 300, "__libc_valloc");
  use(__libc_pvalloc(300), 300, "__libc_pvalloc");
  char* const zeroed = __libc_calloc(30, 10);
  REQUIRE(zeroed != NULL, "__libc_calloc is null");
  for (size_t i = 0; i < 300; ++i) REQUIRE(zeroed[i] == 0, "__libc_calloc: byte %zu", i);
  use(zeroed, 300, "__libc_calloc");
  __libc_free(malloc(300));
  __libc_free(calloc(3, 100));
  free(__libc_malloc(300));
}
