// malloc_usable_size and the functions that promise sizes: all promised bytes can be written.
// (Compiled with _FORTIFY_SOURCE=3, under which the compiler tracks requested sizes, so programs
// that use the surplus must go through malloc_good_size or realloc: see
// reliability/usable_size_fortified.c.)
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

CHECK("every usable byte may be written") {
  enum { blocks = 2000 };
  static void* block[blocks];
  static size_t usable[blocks];
  uint64_t random = 3;
  for (size_t i = 0; i < blocks; ++i) {
    const size_t bytes = random_size(&random, 50000);
    block[i] = malloc(bytes);
    REQUIRE(block[i] != NULL, "malloc(%zu) is null", bytes);
    usable[i] = malloc_usable_size(block[i]);
    EXPECT(usable[i] >= bytes, "malloc(%zu): usable size %zu", bytes, usable[i]);
    fill(block[i], usable[i], i);
  }
  for (size_t i = 0; i < blocks; ++i) {
    EXPECT(malloc_usable_size(block[i]) == usable[i], "%zu changed to %zu", usable[i],
           malloc_usable_size(block[i]));
    EXPECT_FILLED(block[i], usable[i], i);
    free(block[i]);
  }
}

CHECK("nallocx is what an aligned allocation gives") {
  size_t (*const nallocx)(size_t, int) = (size_t(*)(size_t, int))find_function("nallocx");
  if (nallocx == NULL) skip_check("no nallocx");
  for (size_t bytes = 1; bytes < 1000000; bytes = bytes * 2 + 1) {
    for (int log_alignment = 0; log_alignment < 14; ++log_alignment) {
      const size_t promised = nallocx(bytes, log_alignment);
      EXPECT(promised >= bytes, "nallocx(%zu, %d) is %zu", bytes, log_alignment, promised);
      void* block = memalign((size_t)1 << log_alignment, bytes);
      EXPECT(malloc_usable_size(block) >= promised, "nallocx(%zu, %d) is %zu, memalign gives %zu",
             bytes, log_alignment, promised, malloc_usable_size(block));
      free(block);
    }
  }
  EXPECT(nallocx(SIZE_MAX, 0) == 0, "nallocx(SIZE_MAX, 0) is %zu", nallocx(SIZE_MAX, 0));
}

typedef struct SizedResult {
  void* ptr;
  size_t size;
} SizedResult;

CHECK("alloc_at_least says how much it gave") {
  SizedResult (*const alloc_at_least)(size_t) =
      (SizedResult(*)(size_t))find_function("alloc_at_least");
  if (alloc_at_least == NULL) skip_check("no alloc_at_least");
  for (size_t bytes = 0; bytes < 1000000; bytes = bytes * 2 + 1) {
    const SizedResult result = alloc_at_least(bytes);
    REQUIRE(result.ptr != NULL && result.size >= bytes, "alloc_at_least(%zu) is %p with %zu bytes",
            bytes, result.ptr, result.size);
    fill(result.ptr, result.size, bytes);
    EXPECT_FILLED(result.ptr, result.size, bytes);
    free(result.ptr);
  }
  const SizedResult refused = alloc_at_least(opaque(SIZE_MAX));
  EXPECT(refused.ptr == NULL, "alloc_at_least(SIZE_MAX) is %p", refused.ptr);
}
