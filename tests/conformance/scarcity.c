// Little memory: limits on address space and data, and a break that other code moves. Requests fail with ENOMEM, nothing is lost, and freed memory can be reused.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

enum { room_bytes = 64 << 20, most_blocks = 200000 };

static char* block[most_blocks];
static const char* const limited_run = "TSMALLOC_TEST_LIMITED";

// Allocates blocks of `bytes` until none is left; returns how many.
static size_t exhaust(size_t bytes) {
  const size_t count = take_blocks(block, most_blocks, bytes);
  REQUIRE(count < most_blocks, "the limit has no effect: %zu blocks of %zu bytes", count, bytes);
  return count;
}

// One size after the other takes all memory and frees it, so each must be able to use what the
// previous one freed.
static void exhaust_and_recover(void) {
  static const size_t sizes[] = {1 << 20, 4000, 700, 100000, 5 << 20};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    const size_t count = exhaust(sizes[i]);
    EXPECT(count * sizes[i] >= room_bytes / 4, "only %zu blocks of %zu bytes fit into %d bytes",
           count, sizes[i], room_bytes);
    // Every form fails the same way.
    errno = 0;
    void* refused = calloc(16, 1 << 20);
    EXPECT(refused == NULL && errno == ENOMEM, "calloc is %p with errno %d", refused, errno);
    int marker = 0;
    void* pointer = &marker;
    EXPECT(posix_memalign(&pointer, 4096, 16 << 20) == ENOMEM && pointer == &marker,
           "posix_memalign did not fail properly");
    if (count > 0) {
      errno = 0;
      refused = realloc(block[0], 16 << 20);
      EXPECT(refused == NULL && errno == ENOMEM, "realloc is %p with errno %d", refused, errno);
    }
    give_back_blocks(block, count, sizes[i]);
  }
}

// An allocator that has reserved more than any program needs is beyond a later limit; it meets one
// in a program limited from the start.
CHECK("address space runs out, and frees bring it back for other sizes") {
  free(malloc(1000));  // an allocator may reserve address space once
  enum { program_bytes = 32 << 20 };
  if (address_space_bytes() < (size_t)1 << 30) {
    limit_resource(RLIMIT_AS, address_space_bytes() + room_bytes);
    return exhaust_and_recover();
  }
  REQUIRE(setenv(limited_run, "1", 1) == 0, "setenv: %s", strerror(errno));
  limit_resource(RLIMIT_AS, program_bytes + 2 * room_bytes);
  execl("/proc/self/exe", "scarcity", (char*)NULL);
  REQUIRE(0, "execl: %s", strerror(errno));
}

// What the program does instead of its checks when started this way.
__attribute__((constructor)) static void run_limited(void) {
  if (getenv(limited_run) == NULL) return;
  exhaust_and_recover();
  end_check();
}

CHECK("data runs out, and frees bring it back for other sizes") {
  free(malloc(1000));
  // Since Linux 4.7 the limit counts private writable mappings as well as the break.
  limit_resource(RLIMIT_DATA, data_bytes() + room_bytes);
  exhaust_and_recover();
}

CHECK("no page can be had for a while") {
  // Not one more page: requests that need one fail, and work again afterwards.
  char* small = malloc(100);
  REQUIRE(small != NULL, "null");
  struct rlimit kept;
  REQUIRE(getrlimit(RLIMIT_DATA, &kept) == 0, "getrlimit: %s", strerror(errno));
  limit_resource(RLIMIT_DATA, 1);  // not 0: Linux treats that as the hard limit, for Valgrind
  const size_t count = exhaust(1000);
  give_back_blocks(block, count, 1000);
  free(small);
  limit_resource(RLIMIT_DATA, kept.rlim_cur);
  char* large = written(16 << 20);
  free(large);
}

static void allocate_and_verify(size_t count, size_t bytes) {
  for (size_t i = 0; i < count; ++i) block[i] = filled(bytes, i);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_FILLED(block[i], bytes, i);
    free(block[i]);
  }
}

typedef struct Territory {
  char* begin;
  size_t bytes;
} Territory;

static void expect_untouched(const Territory* territory, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    EXPECT_FILLED(territory[i].begin, territory[i].bytes, i);
  }
}

CHECK("others move the break") {
  static const size_t steps[] = {4096, 1, 24, 12296, 7, 100000, 8, 16, 3};
  need_glibc("sbrk refuses programs in other C libraries");
  enum { rounds = 60, blocks_per_round = 100 };
  Territory territory[rounds];
  uint64_t random = 13;
  size_t bytes[blocks_per_round * rounds];
  size_t count = 0;
  for (size_t round = 0; round < rounds; ++round) {
    for (int i = 0; i < blocks_per_round; ++i, ++count) {
      bytes[count] = random_size(&random, 20000);
      block[count] = filled(bytes[count], count);
    }
    territory[round].bytes = steps[round % COUNT_OF(steps)];
    territory[round].begin = sbrk((intptr_t)territory[round].bytes);
    REQUIRE(territory[round].begin != (char*)-1, "sbrk: %s", strerror(errno));
    fill(territory[round].begin, territory[round].bytes, round);
  }
  expect_untouched(territory, rounds);
  for (size_t i = 0; i < count; ++i) {
    EXPECT_FILLED(block[i], bytes[i], i);
    free(block[i]);
  }
  // Freeing everything must not move the break below memory that others took.
  expect_untouched(territory, rounds);
  const Territory* last = &territory[rounds - 1];
  EXPECT((char*)sbrk(0) >= last->begin + last->bytes,
         "the break went back into the program's memory");
  allocate_and_verify(2000, 3000);
  expect_untouched(territory, rounds);
}
