// realloc: contents survive. (rules.c tests what null and zero mean, and limits.c failures.)
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#if __has_include(<linux/userfaultfd.h>)  // not with only musl's headers
#include <linux/userfaultfd.h>
#endif

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
