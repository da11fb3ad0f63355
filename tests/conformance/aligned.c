// The aligned functions: every power of two up to 1 MiB, and the page functions. rules.c tests
// which calls fail, and how; reliability/aligned_allocation.cpp tests larger alignments.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static void* by_posix_memalign(size_t alignment, size_t bytes) {
  void* block = NULL;
  return posix_memalign(&block, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes) == 0
             ? block
             : NULL;
}

typedef struct AlignedFunction {
  const char* name;
  void* (*allocate)(size_t alignment, size_t bytes);
} AlignedFunction;

static const AlignedFunction functions[] = {
    {"posix_memalign", by_posix_memalign},
    {"memalign", memalign},
    {"aligned_alloc", aligned_alloc},
};

static const size_t sizes[] = {0, 1, 16, 24, 100, 1000, 4096, 5000, 40000, 300000};

CHECK("every power of two to 1 MiB for all sizes") {
  for (size_t f = 0; f < COUNT_OF(functions); ++f) {
    for (size_t alignment = 1; alignment <= 1 << 20; alignment *= 2) {
      void* block[COUNT_OF(sizes)];
      // All sizes are live at once, each filled to its usable end, to reveal overlaps.
      for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
        block[i] = functions[f].allocate(alignment, sizes[i]);
        REQUIRE(block[i] != NULL, "%s(%zu, %zu) is null", functions[f].name, alignment, sizes[i]);
        EXPECT((uintptr_t)block[i] % alignment == 0, "%s(%zu, %zu) is %p", functions[f].name,
               alignment, sizes[i], block[i]);
        EXPECT(malloc_usable_size(block[i]) >= sizes[i], "%s(%zu, %zu): usable size %zu",
               functions[f].name, alignment, sizes[i], malloc_usable_size(block[i]));
        fill(block[i], malloc_usable_size(block[i]), alignment + i);
      }
      for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
        const size_t usable = malloc_usable_size(block[i]);
        EXPECT_FILLED(block[i], usable, alignment + i);
        free(block[i]);
      }
    }
  }
}

CHECK("valloc and pvalloc return pages") {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    void* by_valloc = valloc(sizes[i]);
    void* by_pvalloc = pvalloc(sizes[i]);
    REQUIRE(by_valloc != NULL && by_pvalloc != NULL, "null for %zu bytes", sizes[i]);
    EXPECT((uintptr_t)by_valloc % page == 0, "valloc(%zu) is %p", sizes[i], by_valloc);
    EXPECT((uintptr_t)by_pvalloc % page == 0, "pvalloc(%zu) is %p", sizes[i], by_pvalloc);
    const size_t whole_pages = (sizes[i] + page - 1) / page * page;
    EXPECT(malloc_usable_size(by_pvalloc) >= whole_pages, "pvalloc(%zu) has %zu usable bytes",
           sizes[i], malloc_usable_size(by_pvalloc));
    fill(by_valloc, sizes[i], i);
    fill(by_pvalloc, whole_pages, ~i);
    EXPECT_FILLED(by_valloc, sizes[i], i);
    free(by_valloc);
    free(by_pvalloc);
  }
}

// Whole pages are at least one; libc's pvalloc rounds 0 to none.
CHECK("pvalloc(0) is a page that may be written") {
  if (strncmp(tested_library(), "libc.", 5) == 0 || !library_has("pvalloc"))
    skip_check("libc's pvalloc(0) has no page");
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void* block[100];
  for (size_t i = 0; i < COUNT_OF(block); ++i) {
    block[i] = pvalloc(opaque(0));
    REQUIRE(block[i] != NULL, "null at block %zu", i);
    EXPECT((uintptr_t)block[i] % page == 0, "pvalloc(0) is %p", block[i]);
    EXPECT(malloc_usable_size(block[i]) >= page, "pvalloc(0) has %zu usable bytes",
           malloc_usable_size(block[i]));
    fill(block[i], page, i);
  }
  for (size_t i = 0; i < COUNT_OF(block); ++i) {
    EXPECT_FILLED(block[i], page, i);
    free(block[i]);
  }
}
