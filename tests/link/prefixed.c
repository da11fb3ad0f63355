// The functions of libtsmalloc-prefixed.a in a program that also has libc's malloc, or a preloaded
// one.
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <tsmalloc/prefixed.h>
// which makes this one the archive's
#include <tsmalloc/arena.h>
#include <unistd.h>

#include "check.h"

CHECK("two mallocs serve one program") {
  EXPECT(ts_version() == TSMALLOC_VERSION && ts_available() == 1, "%d", ts_version());
  const struct mallinfo2 before = mallinfo2();
  void* block[100];
  for (size_t i = 0; i < COUNT_OF(block); ++i) {
    block[i] = ts_malloc(opaque(100000));
    REQUIRE(block[i] != NULL, "null");
    EXPECT(ts_usable_size(block[i]) == ts_good_size(100000, 0), "%zu", ts_usable_size(block[i]));
  }
  const struct mallinfo2 after = mallinfo2();
  EXPECT(before.uordblks + before.hblkhd == after.uordblks + after.hblkhd,
         "the program's malloc has %zu bytes more",
         after.uordblks + after.hblkhd - before.uordblks - before.hblkhd);
  for (size_t i = 0; i < COUNT_OF(block); ++i) ts_free(block[i]);
  EXPECT(ts_trim(0) == 1, "nothing to give back");
  ts_thread_flush();
  EXPECT(ts_purge() < 1 << 20, "more to give back");
  ts_statistics s;
  EXPECT(ts_stats(&s, sizeof s) == 1 && s.small_bytes < 100000, "%zu bytes", s.small_bytes);
  char* const grown = ts_rezalloc(ts_alloc_at_least(10, 64, NULL), 10, 100000);
  ts_extent extent;
  EXPECT(ts_owns(grown) == 1 && ts_expand(grown, 100000) == 1 && grown[99999] == 0, "%p", grown);
  EXPECT(ts_block_of(grown + 99999, &extent, NULL) == 1 && extent.address == grown, "%p", grown);
  ts_free(grown);
  EXPECT(ts_housekeep() >= -1 && ts_housekeep() <= 200, "ts_housekeep() is %d", ts_housekeep());
  EXPECT(find_function("ts_malloc") == NULL, "ts_malloc is shown to other libraries");
}

// A scope applies to the functions of the archive, not to the program's malloc.
CHECK("a scope is one of the archive's functions alone") {
  ts_arena* const arena = ts_arena_create();
  REQUIRE(arena != NULL && ts_scope_enter(arena) == 0, "errno %d", errno);
  void* const others = malloc(opaque(1000));
  for (int i = 0; i < 100; ++i) EXPECT(ts_malloc(opaque(1000)) != NULL, "null");
  EXPECT(ts_scope_leave() == 0, "in no scope");
  struct ts_arena_usage usage = {0, 0, 0};
  EXPECT(ts_arena_stats(arena, &usage) == 0, "busy");
  EXPECT(usage.used_bytes >= 100000 && usage.used_bytes < 110000, "%zu", usage.used_bytes);
  EXPECT(ts_arena_destroy(arena) == 0, "busy");
  free(others);
}

CHECK("errors are told, and leave blocks alone") {
  static const size_t bad[] = {0, 3, 24, SIZE_MAX};
  for (size_t i = 0; i < COUNT_OF(bad); ++i) {
    errno = 0;
    EXPECT(ts_aligned_alloc(bad[i], 100) == NULL && errno == EINVAL, "alignment %zu", bad[i]);
    errno = 0;
    EXPECT(ts_realloc_aligned(NULL, bad[i], 100) == NULL && errno == EINVAL, "%zu", bad[i]);
  }
  char* const block = ts_aligned_alloc(64, 100);
  REQUIRE(block != NULL, "null");
  fill(block, 100, 1);
  errno = 0;
  EXPECT(ts_realloc_aligned(block, 64, opaque(SIZE_MAX)) == NULL && errno == ENOMEM, "%d", errno);
  EXPECT(ts_malloc(opaque(PTRDIFF_MAX)) == NULL && errno == ENOMEM, "%d", errno);
  EXPECT(ts_calloc(opaque(SIZE_MAX / 2), 4) == NULL && errno == ENOMEM, "%d", errno);
  EXPECT(ts_realloc(block, opaque(SIZE_MAX)) == NULL && errno == ENOMEM, "%d", errno);
  EXPECT_FILLED(block, 100, 1);
  errno = 7;
  ts_free_aligned_sized(block, 64, 100);
  ts_free(NULL);
  ts_free_sized(NULL, 5);
  EXPECT(errno == 7, "%d", errno);
  EXPECT(ts_realloc_aligned(ts_malloc(10), 64, 0) == NULL, "realloc to 0 frees");
}

// With every alignment, growing and shrinking between sizes of all kinds, and changing the
// alignment.
CHECK("realloc keeps contents and alignment") {
  uint64_t random = 5;
  for (int i = 0; i < 600; ++i) {
    size_t alignment = (size_t)1 << next_random(&random) % 18;
    size_t bytes = 1 + random_size(&random, 2000000);
    char* block = ts_aligned_alloc(alignment, bytes);
    REQUIRE(block != NULL, "null");
    fill(block, bytes, bytes);
    for (int step = 0; step < 3; ++step) {
      const size_t next = 1 + random_size(&random, 2000000);
      if (step == 2) alignment = (size_t)1 << next_random(&random) % 18;
      char* const moved = ts_realloc_aligned(block, alignment, next);
      REQUIRE(moved != NULL, "null");
      EXPECT((uintptr_t)moved % alignment == 0, "%p, not aligned to %zu", (void*)moved, alignment);
      const size_t kept = bytes < next ? bytes : next;
      EXPECT_FILLED(moved, kept, bytes);
      EXPECT(ts_usable_size(moved) >= next, "%zu of %zu", ts_usable_size(moved), next);
      block = moved;
      bytes = next;
      fill(block, bytes, bytes);
    }
    ts_free_aligned_sized(block, alignment, bytes);
  }
}

static void* fill_both(void* argument) {
  uint64_t random = (uintptr_t)argument;
  for (int i = 0; i < 1500; ++i) {
    const size_t bytes = 1 + random_size(&random, 20000);
    void* const ours = ts_malloc(bytes);
    void* const theirs = malloc(bytes);
    REQUIRE(ours != NULL && theirs != NULL, "null");
    fill(ours, bytes, 1);
    fill(theirs, bytes, 2);
    EXPECT_FILLED(ours, bytes, 1);
    free(theirs);
    ts_free(ours);
  }
  return NULL;
}

CHECK("threads end and forks go on, under both mallocs") {
  for (size_t round = 0; round < 2; ++round) {
    pthread_t thread[4];
    for (size_t i = 0; i < COUNT_OF(thread); ++i)
      REQUIRE(pthread_create(&thread[i], NULL, fill_both, (void*)(round * 4 + i)) == 0, "thread");
    for (int i = 0; i < 10; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(60);
        fill_both((void*)99);
        end_check();
      }
      const int status = status_of(child);
      EXPECT(status == 0, "the child ended with status %#x", (unsigned)status);
    }
    join_threads(thread, COUNT_OF(thread));
  }
}

static void* early;
__attribute__((constructor(101))) static void allocate_early(void) { early = ts_malloc(100); }
CHECK("a constructor allocates") {
  REQUIRE(early != NULL, "null");
  EXPECT(ts_usable_size(early) >= 100, "%zu", ts_usable_size(early));
  ts_free(early);
}
