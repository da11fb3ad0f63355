// realloc: contents survive. (rules.c tests what null and zero mean, and limits.c failures.)
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#if __has_include(<linux/userfaultfd.h>)  // not with only musl's headers
#include <linux/userfaultfd.h>
#endif

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// Moves a block from one size to another and checks what must survive.
static void expect_contents_kept(size_t from, size_t to, uint64_t seed) {
  char* block = filled(from, seed);
  char* moved = realloc(block, to);
  REQUIRE(moved != NULL, "realloc from %zu to %zu is null", from, to);
  const size_t kept = smaller(from, to);
  EXPECT((uintptr_t)moved % natural_alignment(to) == 0, "realloc from %zu to %zu is %p", from, to,
         (void*)moved);
  EXPECT_FILLED(moved, kept, seed);
  EXPECT(malloc_usable_size(moved) >= to, "realloc from %zu to %zu: usable size %zu", from, to,
         malloc_usable_size(moved));
  fill(moved, to, ~seed);
  free(moved);
}

CHECK("realloc keeps contents from every size to every size") {
  static const size_t sizes[] = {1,    8,    15,    16,    24,     25,     40,      64,     100,
                                 1000, 4096, 10000, 65536, 131072, 140000, 1 << 20, 3 << 20};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    for (size_t j = 0; j < COUNT_OF(sizes); ++j)
      expect_contents_kept(sizes[i], sizes[j], i * 100 + j);
  }
}

CHECK("realloc to the same size stays in place") {
  for (size_t bytes = 1; bytes < 300000; bytes = bytes * 3 + 1) {
    void* block = malloc(bytes);
    const uintptr_t address = (uintptr_t)block;
    void* again = realloc(block, bytes);
    EXPECT((uintptr_t)again == address, "realloc of %zu bytes to %zu bytes moved the block", bytes,
           bytes);
    free(again);
  }
}

CHECK("realloc takes blocks of the aligned functions") {
  for (size_t alignment = 32; alignment <= 65536; alignment *= 2) {
    void* block = NULL;
    REQUIRE(posix_memalign(&block, alignment, 1000) == 0, "posix_memalign(%zu, 1000) failed",
            alignment);
    fill(block, 1000, alignment);
    char* moved = realloc(block, 50000);
    REQUIRE(moved != NULL, "null at alignment %zu", alignment);
    EXPECT_FILLED(moved, 1000, alignment);
    fill(moved, 50000, alignment);
    free(moved);
  }
}

static void expect_zero(const char* block, size_t bytes) {
  REQUIRE(block != NULL, "calloc(1, %zu) is null", bytes);
  const size_t at = first_nonzero(block, bytes);
  EXPECT(at == bytes, "calloc(1, %zu): byte %zu is %d", bytes, at, block[at]);
}

// An allocator that knows which memory was never used need not clear it; a block that grows with no
// room after it makes the allocator look for such memory.
CHECK("calloc clears what a block that grew has left behind") {
  enum { kibibyte = 1 << 10 };
  for (size_t last = 1000; last <= 10000; last += 500) {
    char* growing = written((size_t)600 * kibibyte);
    char* const fence = written((size_t)600 * kibibyte);
    free(written(last * kibibyte));
    growing = realloc(growing, (size_t)900 * kibibyte);
    REQUIRE(growing != NULL, "realloc is null");
    char* blocks[4];
    for (size_t i = 0; i < COUNT_OF(blocks); ++i) {
      const size_t bytes = last * kibibyte / (i + 1);
      expect_zero(blocks[i] = calloc(1, bytes), bytes);
      memset(blocks[i], 0xff, bytes);
    }
    for (size_t i = 0; i < COUNT_OF(blocks); ++i) free(blocks[i]);
    free(growing);
    free(fence);
  }
}

CHECK("calloc clears whatever was there") {
  struct {
    char* address;
    size_t bytes;
  } slots[16] = {{NULL, 0}};
  uint64_t random = 1;
  for (int i = 0; i < (check_is_long() ? 40000 : 1500); ++i) {
    const size_t slot = next_random(&random) % COUNT_OF(slots);
    const size_t bytes = ((size_t)1 << next_random(&random) % 22) + next_random(&random) % 4096;
    char* block = slots[slot].address;
    const bool grows = next_random(&random) % 2 == 0;
    if (grows) {
      const size_t kept = slots[slot].bytes < bytes ? slots[slot].bytes : bytes;
      block = realloc(block, bytes);
      REQUIRE(block != NULL, "realloc to %zu is null", bytes);
      const char filled = (char)0xff;  // -1, or 255 where char is unsigned
      EXPECT(kept == 0 ||
                 (block[0] == filled && block[kept / 2] == filled && block[kept - 1] == filled),
             "realloc to %zu bytes lost some", bytes);
    } else {
      free(block);
      expect_zero(block = calloc(1, bytes), bytes);
    }
    memset(block, 0xff, bytes);
    slots[slot].address = block;
    slots[slot].bytes = bytes;
  }
  for (size_t i = 0; i < COUNT_OF(slots); ++i) free(slots[i].address);
}

// The system moves a block's pages up to those that userfaultfd watches, and then fails.
CHECK("pages that userfaultfd watches survive") {
#ifdef UFFD_API
  enum { mebibyte = 1 << 20 };
  const int descriptor = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
  struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
  if (descriptor < 0 || syscall(SYS_ioctl, descriptor, UFFDIO_API, &api) != 0)
    skip_check("the system has no userfaultfd that watches writes");
  char* const block = filled(4 * mebibyte, 5);
  char* const behind = malloc(4 * mebibyte);  // or the block might grow in place
  const uintptr_t middle = ((uintptr_t)block + 2 * mebibyte) / 4096 * 4096;
  struct uffdio_register watched = {{middle, mebibyte}, UFFDIO_REGISTER_MODE_WP, 0};
  REQUIRE(syscall(SYS_ioctl, descriptor, UFFDIO_REGISTER, &watched) == 0, "register: %s",
          strerror(errno));
  char* const grown = realloc(block, 12 * mebibyte);
  REQUIRE(grown != NULL, "realloc is null");
  EXPECT_FILLED(grown, 4 * mebibyte, 5);
  close(descriptor);
  free(grown);
  free(behind);
#else
  skip_check("userfaultfd is not declared");
#endif
}
