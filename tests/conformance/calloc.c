// calloc: zeroed whatever the memory was before, and products that overflow are refused.
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

static size_t first_nonzero(const char* block, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    if (block[i] != 0) return i;
  }
  return bytes;
}

static void zeroes_used_memory(void) {
  static const size_t sizes[] = {1,    8,    16,   24,    40,     64,     100,     256,
                                 1000, 4096, 5000, 65536, 131072, 200000, 1 << 20, 8 << 20};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    for (int round = 0; round < 4; ++round) {
      void* dirty = malloc(sizes[i]);
      REQUIRE(dirty != NULL, "malloc(%zu) is null", sizes[i]);
      memset(dirty, 0xa5, sizes[i]);
      free(opaque_pointer(dirty));
      char* block = calloc(1, sizes[i]);
      REQUIRE(block != NULL, "calloc(1, %zu) is null", sizes[i]);
      EXPECT(first_nonzero(block, sizes[i]) == sizes[i], "calloc(1, %zu): byte %zu is not zero",
             sizes[i], first_nonzero(block, sizes[i]));
      memset(block, 0x5a, sizes[i]);
      free(opaque_pointer(block));
    }
  }
}

// glibc's does, and programs that use what malloc_usable_size tells may rely on it. Sizes just above
// those of classes and of pages leave most behind the request.
static void zeroes_usable_bytes(void) {
  static const size_t sizes[] = {0,     1,     17,    100,   129,    1025,   2100,    5000,
                                 20500, 32769, 40000, 70000, 135000, 300000, 1049000, 5 << 20};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    for (int round = 0; round < 4; ++round) {
      void* dirty = malloc(sizes[i]);
      REQUIRE(dirty != NULL, "malloc(%zu) is null", sizes[i]);
      memset(dirty, 0xa5, malloc_usable_size(dirty));
      free(opaque_pointer(dirty));
      char* block = calloc(1, sizes[i]);
      REQUIRE(block != NULL, "calloc(1, %zu) is null", sizes[i]);
      const size_t usable = malloc_usable_size(block);
      EXPECT(first_nonzero(block, usable) == usable,
             "calloc(1, %zu): byte %zu of %zu usable ones is not zero", sizes[i],
             first_nonzero(block, usable), usable);
      memset(block, 0x5a, usable);
      free(opaque_pointer(block));
    }
  }
}

static void counts_times_sizes(void) {
  static const size_t shapes[][2] = {{1, 1},      {3, 5},      {100, 7},    {7, 100},
                                     {1, 100000}, {100000, 1}, {1000, 1000}};
  for (size_t i = 0; i < COUNT_OF(shapes); ++i) {
    const size_t bytes = shapes[i][0] * shapes[i][1];
    char* block = calloc(shapes[i][0], shapes[i][1]);
    REQUIRE(block != NULL, "calloc(%zu, %zu) is null", shapes[i][0], shapes[i][1]);
    EXPECT(first_nonzero(block, bytes) == bytes, "calloc(%zu, %zu) is not zero", shapes[i][0],
           shapes[i][1]);
    fill(block, bytes, i);
    free(block);
  }
}

static void zero_products(void) {
  static const size_t shapes[][2] = {{0, 0}, {0, 1}, {1, 0}, {0, SIZE_MAX}, {SIZE_MAX, 0}};
  for (size_t i = 0; i < COUNT_OF(shapes); ++i) {
    void* block = calloc(opaque(shapes[i][0]), opaque(shapes[i][1]));
    EXPECT(block != NULL, "calloc(%zu, %zu) is null", shapes[i][0], shapes[i][1]);
    free(block);
  }
}

static void overflow(void) {
  // Products that do not fit size_t; the last four would wrap to 0, 0, 16 and 48.
  static const size_t shapes[][2] = {{SIZE_MAX, 2},           {2, SIZE_MAX},
                                     {SIZE_MAX, SIZE_MAX},    {(size_t)1 << 33, (size_t)1 << 33},
                                     {SIZE_MAX / 2 + 1, 2},   {(size_t)1 << 32, (size_t)1 << 32},
                                     {SIZE_MAX / 16 + 2, 16}, {SIZE_MAX / 3 + 17, 3}};
  for (size_t i = 0; i < COUNT_OF(shapes); ++i) {
    errno = 0;
    void* block = calloc(opaque(shapes[i][0]), opaque(shapes[i][1]));
    EXPECT(block == NULL && errno == ENOMEM, "calloc(%zu, %zu) is %p with errno %d", shapes[i][0],
           shapes[i][1], block, errno);
    free(block);
  }
}

// The system refuses to take back pages that are locked in memory.
static void zeroes_locked_memory(void) {
  const size_t bytes = 1 << 20;
  char* dirty = malloc(bytes);
  REQUIRE(dirty != NULL, "malloc(%zu) is null", bytes);
  memset(dirty, 0xa5, bytes);
  if (mlock(dirty, 32 << 10) != 0) skip_check("mlock is not permitted");
  free(opaque_pointer(dirty));
  malloc_trim(0);
  char* block = calloc(1, bytes);
  REQUIRE(block != NULL, "calloc(1, %zu) is null", bytes);
  EXPECT(first_nonzero(block, bytes) == bytes, "byte %zu is not zero", first_nonzero(block, bytes));
}

static const Check checks[] = {
    {"calloc zeroes memory that was used before", zeroes_used_memory},
    {"calloc zeroes memory that was locked and trimmed", zeroes_locked_memory},
    {"calloc zeroes all that malloc_usable_size then tells", zeroes_usable_bytes},
    {"calloc multiplies count and size", counts_times_sizes},
    {"calloc of zero bytes returns a block", zero_products},
    {"calloc refuses products that overflow", overflow},
};
CHECK_MAIN(checks)
