// tsmalloc/arena.h: arenas and scopes, in a program whose parts know nothing of them. In libraries
// without arenas, and without any library, each function reports that. arenas_cxx.cpp tests the
// same for C++; the oracle of fuzz/arena_operations.cpp nests scopes, frees blocks in other threads
// and ends threads in scopes; unit/engine/arenas_test.cpp forks.
//
// ARENAS_EXPECTED tells whether there are any: 1 or 0. If it is unset, the dynamic linker decides.
#include <tsmalloc/arena.h>
// First, to show that the header needs no other.
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static bool are_expected(void) { return is_expected("ARENAS_EXPECTED", "ts_scope_enter"); }

static ts_arena* new_arena(void) {
  if (!are_expected()) skip_check("no arenas");
  ts_arena* const arena = ts_arena_create();
  REQUIRE(arena != NULL, "errno %d", errno);
  return arena;
}

static struct ts_arena_usage usage_of(ts_arena* arena) {
  struct ts_arena_usage usage = {0, 0, 0};
  const int error = ts_arena_stats(arena, &usage);
  EXPECT(error == 0, "ts_arena_stats() is %d", error);
  return usage;
}

// By functions of libc that know nothing of arenas; returns how many bytes at least.
static size_t use_libc(char** texts, size_t count) {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    REQUIRE(asprintf(&texts[i], "text %zu", i) > 0, "asprintf");
    bytes += strlen(texts[i]);
    if (i % 3 != 0) continue;
    char* const copy = strdup(texts[i]);
    free(texts[i]);
    texts[i] = realloc(copy, 1000);
    REQUIRE(texts[i] != NULL, "null");
    bytes += 900;
  }
  return bytes;
}

CHECK("libc, which knows nothing of it, allocates in an arena") {
  ts_arena* const arena = new_arena();
  static char* texts[30000];
  for (int round = 0; round < 5; ++round) {
    EXPECT(ts_scope_enter(arena) == 0, "round %d", round);
    const size_t bytes = use_libc(texts, COUNT_OF(texts));
    EXPECT(ts_scope_leave() == 0, "round %d", round);
    const struct ts_arena_usage usage = usage_of(arena);
    EXPECT(usage.used_bytes >= bytes, "%zu bytes are used", usage.used_bytes);
    EXPECT(usage.slab_bytes + usage.large_bytes >= usage.used_bytes, "%zu + %zu < %zu",
           usage.slab_bytes, usage.large_bytes, usage.used_bytes);
    if (round % 2 == 0) {  // by hand, outside of the scope
      for (size_t i = 0; i < COUNT_OF(texts); ++i) free(texts[i]);
      EXPECT(usage_of(arena).used_bytes == 0, "%zu bytes are used", usage_of(arena).used_bytes);
    }
    EXPECT(ts_arena_reset(arena) == 0, "round %d", round);
    EXPECT(usage_of(arena).slab_bytes + usage_of(arena).large_bytes == 0, "a reset left memory");
  }
  EXPECT(ts_arena_destroy(arena) == 0, "busy");
}

// ---- the rules ----

CHECK("an arena's blocks are blocks of malloc") {
  ts_arena* const arena = new_arena();
  static const size_t sizes[] = {0, 1, 100, 4000, 32768, 32769, 100000, 5000000};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    errno = 7;
    char* block = ts_arena_malloc(arena, opaque(sizes[i]));
    REQUIRE(block != NULL, "%zu bytes: errno %d", sizes[i], errno);
    EXPECT(errno == 7, "errno is %d", errno);
    EXPECT(ts_usable_size(block) >= sizes[i], "%zu", ts_usable_size(block));
    fill(block, sizes[i], i);
    block = realloc(block, sizes[i] + 10000);
    REQUIRE(block != NULL, "null");
    EXPECT_FILLED(block, sizes[i], i);
    free(block);
    for (size_t alignment = 16; alignment <= 1 << 20; alignment *= 4) {
      block = ts_arena_aligned_alloc(arena, alignment, opaque(sizes[i]));
      REQUIRE(block != NULL, "null");
      EXPECT((uintptr_t)block % alignment == 0, "%p is not aligned to %zu", (void*)block,
             alignment);
      if (alignment % 64 == 0) free(block);
    }
  }
  EXPECT(ts_arena_aligned_alloc(arena, 24, 100) == NULL && errno == EINVAL, "errno %d", errno);
  EXPECT(ts_arena_malloc(arena, opaque(PTRDIFF_MAX)) == NULL && errno == ENOMEM, "%d", errno);
  EXPECT(ts_arena_destroy(arena) == 0, "busy");
}

CHECK("mistakes are errors that change nothing") {
  ts_arena* const arena = new_arena();
  errno = 7;
  EXPECT(ts_scope_leave() == EINVAL, "left no scope");
  EXPECT(ts_scope_enter((ts_arena*)opaque_pointer((void*)1)) == EINVAL, "entered no arena");
  EXPECT(ts_arena_destroy(NULL) == EINVAL, "destroyed no arena");
  EXPECT(ts_scope_enter(arena) == 0, "refused");
  EXPECT(ts_arena_destroy(arena) == EBUSY, "destroyed in its scope");
  EXPECT(ts_arena_reset(arena) == EBUSY, "reset in its scope");
  EXPECT(ts_scope_leave() == 0 && ts_scope_leave() == EINVAL, "left twice");
  EXPECT(ts_arena_destroy(arena) == 0, "busy");
  EXPECT(ts_arena_destroy(arena) == EINVAL, "destroyed twice");
  EXPECT(ts_arena_reset(arena) == EINVAL, "reset after its end");
  EXPECT(ts_scope_enter(arena) == EINVAL, "entered after its end");
  EXPECT(errno == 7, "errno is %d", errno);
  EXPECT(ts_arena_malloc(arena, 1) == NULL && errno == EINVAL, "errno %d", errno);
  EXPECT(ts_arena_malloc(NULL, 1) == NULL && errno == EINVAL, "errno %d", errno);
}

// ---- many ----

CHECK("many arenas come and go") {
  static ts_arena* arenas[3000];
  arenas[0] = new_arena();
  for (size_t i = 1; i < COUNT_OF(arenas); ++i) arenas[i] = new_arena();
  for (size_t i = 0; i < COUNT_OF(arenas); ++i) {
    char* const block = ts_arena_malloc(arenas[i], 100 + i);
    REQUIRE(block != NULL, "null");
    fill(block, 100 + i, i);
  }
  const struct mallinfo2 before = mallinfo2();
  for (size_t i = 0; i < COUNT_OF(arenas); ++i)
    EXPECT(ts_arena_destroy(arenas[i]) == 0, "arena %zu", i);
  const struct mallinfo2 after = mallinfo2();
  EXPECT(after.uordblks < before.uordblks - COUNT_OF(arenas) * 100, "%zu bytes in use, then %zu",
         before.uordblks, after.uordblks);
  for (int i = 0; i < 100000; ++i) {
    ts_arena* const arena = ts_arena_create();
    REQUIRE(arena != NULL && ts_arena_malloc(arena, 50) != NULL, "round %d", i);
    EXPECT(ts_arena_destroy(arena) == 0, "round %d", i);
  }
}

// ---- without arenas ----

CHECK("without arenas each function says so") {
  if (are_expected()) skip_check("there are arenas");
  struct ts_arena_usage usage;
  errno = 0;
  EXPECT(ts_arena_create() == NULL && errno == ENOTSUP, "errno %d", errno);
  errno = 0;
  EXPECT(ts_arena_malloc(NULL, 10) == NULL && errno == ENOTSUP, "errno %d", errno);
  errno = 0;
  EXPECT(ts_arena_aligned_alloc(NULL, 64, 10) == NULL && errno == ENOTSUP, "errno %d", errno);
  EXPECT(ts_arena_reset(NULL) == ENOTSUP && ts_arena_destroy(NULL) == ENOTSUP, "another error");
  EXPECT(ts_arena_stats(NULL, &usage) == ENOTSUP, "another error");
  EXPECT(ts_scope_enter(NULL) == ENOTSUP && ts_scope_leave() == ENOTSUP, "another error");
}
