// Frees that take the size: C23's pair and jemalloc's sdallocx. Newer than libc's headers, so
// looked up by name.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

typedef void (*FreeSized)(void*, size_t);
typedef void (*FreeAlignedSized)(void*, size_t, size_t);
typedef void (*SizedDeallocate)(void*, size_t, int);

static const size_t sizes[] = {0, 1, 24, 100, 1000, 5000, 100000, 1 << 20, 16 << 20};

static void* write_all(void* block, size_t bytes) {
  REQUIRE(block != NULL, "an allocation of %zu bytes is null", bytes);
  memset(block, 1, bytes);
  return opaque_pointer(block);
}

CHECK("free_sized frees what malloc, calloc and realloc gave") {
  const FreeSized free_sized = (FreeSized)find_function("free_sized");
  if (free_sized == NULL) skip_check("no free_sized (glibc has it from 2.43 on)");
  free_sized(opaque_pointer(NULL), 0);
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
      errno = 4711;
      free_sized(write_all(malloc(sizes[i]), sizes[i]), sizes[i]);
      free_sized(write_all(calloc(1, sizes[i]), sizes[i]), sizes[i]);
      free_sized(write_all(realloc(malloc(10), sizes[i] + 1), sizes[i] + 1), sizes[i] + 1);
      EXPECT(errno == 4711, "errno became %d", errno);
    }
  }
}

CHECK("free_aligned_sized frees what aligned_alloc gave") {
  const FreeAlignedSized free_aligned_sized = (FreeAlignedSized)find_function("free_aligned_sized");
  if (free_aligned_sized == NULL) skip_check("no free_aligned_sized (glibc has it from 2.43 on)");
  free_aligned_sized(opaque_pointer(NULL), 64, 0);
  for (size_t alignment = 16; alignment <= 65536; alignment *= 4) {
    for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
      free_aligned_sized(write_all(aligned_alloc(alignment, sizes[i]), sizes[i]), alignment,
                         sizes[i]);
    }
  }
}

CHECK("sdallocx frees") {
  const SizedDeallocate sdallocx = (SizedDeallocate)find_function("sdallocx");
  if (sdallocx == NULL) skip_check("no sdallocx");
  for (size_t i = 1; i < COUNT_OF(sizes); ++i)
    sdallocx(write_all(malloc(sizes[i]), sizes[i]), sizes[i], 0);
}

CHECK("sized frees lose no memory") {
  const FreeSized free_sized = (FreeSized)find_function("free_sized");
  if (free_sized == NULL) skip_check("no free_sized (glibc has it from 2.43 on)");
  const size_t before = resident_bytes();
  for (int i = 0; i < 500; ++i) free_sized(write_all(malloc(1 << 20), 1 << 20), 1 << 20);
  const size_t grown = resident_bytes() - before;
  EXPECT(grown < (size_t)64 << 20, "500 blocks of 1 MiB made the process %zu bytes larger", grown);
}
