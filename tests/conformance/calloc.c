// calloc: zeroed whatever the memory held before. (rules.c tests which requests fail.)
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"

// glibc zeroes all of it, and programs that use malloc_usable_size may rely on that. Sizes just
// above those of classes and pages have the most bytes after the request.
CHECK("calloc zeroes used memory, to the end of what malloc_usable_size tells") {
  static const size_t sizes[] = {0,      1,       16,      17,      24,     64,     100,
                                 129,    256,     1025,    2100,    4096,   5000,   20500,
                                 32769,  40000,   65536,   70000,   131072, 135000, 200000,
                                 300000, 1 << 20, 1049000, 5 << 20, 8 << 20};
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

// The system refuses to take back pages that are locked in memory.
CHECK("calloc zeroes memory that was locked and trimmed") {
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
