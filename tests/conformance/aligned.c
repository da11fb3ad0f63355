// The aligned functions: every power of two up to 1 MiB, what is refused and how, and the page
// functions.
#include <dlfcn.h>
#include <errno.h>
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

static void every_power_of_two(void) {
  for (size_t f = 0; f < COUNT_OF(functions); ++f) {
    for (size_t alignment = 1; alignment <= 1 << 20; alignment *= 2) {
      void* block[COUNT_OF(sizes)];
      // All sizes live at once, each filled to its usable end, so that a block that reaches into
      // another shows.
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
        EXPECT(first_damage(block[i], usable, alignment + i) == usable,
               "%s(%zu, %zu): byte %zu of %zu was overwritten", functions[f].name, alignment,
               sizes[i], first_damage(block[i], usable, alignment + i), usable);
        free(block[i]);
      }
    }
  }
}

static void large_alignments(void) {
  for (size_t alignment = 2 << 20; alignment <= 64 << 20; alignment *= 2) {
    for (size_t f = 0; f < COUNT_OF(functions); ++f) {
      char* block = functions[f].allocate(alignment, 100);
      REQUIRE(block != NULL, "%s(%zu, 100) is null", functions[f].name, alignment);
      EXPECT((uintptr_t)block % alignment == 0, "%s(%zu, 100) is %p", functions[f].name, alignment,
             (void*)block);
      fill(block, 100, alignment);
      free(block);
    }
  }
}

static void many_aligned_and_plain(void) {
  enum { blocks = 3000 };
  static void* block[blocks];
  static size_t bytes[blocks];
  uint64_t random = 7;
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < blocks; ++i) {
      const size_t alignment = (size_t)16 << (next_random(&random) % 10);
      bytes[i] = random_size(&random, 3000);
      block[i] = i % 2 == 0 ? malloc(bytes[i]) : memalign(alignment, bytes[i]);
      REQUIRE(block[i] != NULL, "null at block %zu", i);
      EXPECT(i % 2 == 0 || (uintptr_t)block[i] % alignment == 0, "memalign(%zu, %zu) is %p",
             alignment, bytes[i], block[i]);
      fill(block[i], bytes[i], i);
    }
    for (size_t i = 0; i < blocks; ++i) {
      const size_t chosen = (i * 1597) % blocks;
      EXPECT(first_damage(block[chosen], bytes[chosen], chosen) == bytes[chosen],
             "block %zu was overwritten", chosen);
      free(block[chosen]);
    }
  }
}

// POSIX: EINVAL unless the alignment is a power of two and a multiple of sizeof(void*); a failure
// does not touch *memptr.
static void posix_memalign_refusals(void) {
  static const struct {
    size_t alignment;
    size_t bytes;
    int error;
  } refusals[] = {{0, 8, EINVAL},
                  {1, 8, EINVAL},
                  {2, 8, EINVAL},
                  {4, 8, EINVAL},
                  {12, 8, EINVAL},
                  {24, 8, EINVAL},
                  {48, 8, EINVAL},
                  {4097, 8, EINVAL},
                  {SIZE_MAX, 8, EINVAL},
                  {16, SIZE_MAX, ENOMEM},
                  {64, SIZE_MAX - 64, ENOMEM},
                  {4096, PTRDIFF_MAX, ENOMEM},
                  {(size_t)1 << 62, (size_t)1 << 62, ENOMEM},
                  {(size_t)1 << 63, 8, ENOMEM},
                  {(size_t)1 << 63, SIZE_MAX, ENOMEM}};
  int marker = 0;
  for (size_t i = 0; i < COUNT_OF(refusals); ++i) {
    void* block = &marker;
    const int error =
        posix_memalign(&block, opaque(refusals[i].alignment), opaque(refusals[i].bytes));
    EXPECT(error == refusals[i].error, "posix_memalign(%zu, %zu) returned %d instead of %d",
           refusals[i].alignment, refusals[i].bytes, error, refusals[i].error);
    EXPECT(block == &marker, "posix_memalign(%zu, %zu) failed and set the pointer to %p",
           refusals[i].alignment, refusals[i].bytes, block);
  }
}

// Not a power of two: memalign rounds up. aligned_alloc refuses it as glibc does from 2.38 on; that
// older ones round up is sound, too, but a misaligned block is not.
static void odd_alignments(void) {
  static const size_t alignments[] = {0, 3, 5, 17, 24, 48, 100, 1000, 4095, 5000};
  for (size_t f = 1; f < COUNT_OF(functions); ++f) {
    for (size_t i = 0; i < COUNT_OF(alignments); ++i) {
      errno = 0;
      char* block = functions[f].allocate(opaque(alignments[i]), 100);
      if (library_is_ours()) {
        const bool is_refused = functions[f].allocate == aligned_alloc;
        EXPECT((block == NULL) == is_refused, "%s(%zu, 100) is %p", functions[f].name,
               alignments[i], (void*)block);
      }
      if (block == NULL) {
        EXPECT(errno == EINVAL, "%s(%zu, 100) is null with errno %d", functions[f].name,
               alignments[i], errno);
        continue;
      }
      size_t rounded = 16;
      while (rounded < alignments[i]) rounded *= 2;
      EXPECT((uintptr_t)block % rounded == 0, "%s(%zu, 100) is %p", functions[f].name,
             alignments[i], (void*)block);
      fill(block, 100, i);
      free(block);
    }
  }
}

static void impossible_requests(void) {
  static const struct {
    size_t alignment;
    size_t bytes;
  } requests[] = {{32, SIZE_MAX},
                  {32, SIZE_MAX - 31},
                  {64, (size_t)PTRDIFF_MAX + 1},
                  {4096, PTRDIFF_MAX},
                  {(size_t)1 << 62, 1},
                  {(size_t)1 << 62, (size_t)1 << 62},
                  {(size_t)1 << 63, 1},
                  {(size_t)1 << 63, (size_t)1 << 63}};
  for (size_t f = 1; f < COUNT_OF(functions); ++f) {
    for (size_t i = 0; i < COUNT_OF(requests); ++i) {
      errno = 0;
      void* block = functions[f].allocate(opaque(requests[i].alignment), opaque(requests[i].bytes));
      EXPECT(block == NULL && (errno == ENOMEM || errno == EINVAL),
             "%s(%zu, %zu) is %p with errno %d", functions[f].name, requests[i].alignment,
             requests[i].bytes, block, errno);
    }
  }
}

static void page_functions(void) {
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
    EXPECT(first_damage(by_valloc, sizes[i], i) == sizes[i], "valloc(%zu) was overwritten",
           sizes[i]);
    free(by_valloc);
    free(by_pvalloc);
  }
}

// Whole pages are at least one; libc's pvalloc rounds 0 to none.
static void pvalloc_of_nothing(void) {
  Dl_info its;
  Dl_info libcs;
  REQUIRE(
      dladdr(find_function("pvalloc"), &its) != 0 && dladdr(find_function("getpid"), &libcs) != 0,
      "dladdr failed");
  if (its.dli_fbase == libcs.dli_fbase) skip_check("libc's pvalloc(0) has no page");
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
    EXPECT(first_damage(block[i], page, i) == page, "pvalloc(0) was overwritten");
    free(block[i]);
  }
}

static const Check checks[] = {
    {"every power of two to 1 MiB for all sizes", every_power_of_two},
    {"alignments to 64 MiB", large_alignments},
    {"aligned and plain blocks side by side", many_aligned_and_plain},
    {"posix_memalign returns its error and leaves the pointer", posix_memalign_refusals},
    {"aligned_alloc refuses what is no power of two, memalign rounds it up", odd_alignments},
    {"aligned requests that no memory could hold", impossible_requests},
    {"valloc and pvalloc return pages", page_functions},
    {"pvalloc(0) is a page that may be written", pvalloc_of_nothing},
};
CHECK_MAIN(checks)
