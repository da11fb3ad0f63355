// Random operations of all kinds against a shadow copy: contents survive, live blocks never
// overlap, sizes and alignments hold. Single-threaded, and with threads that steal each other's
// blocks.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

// A live block (or none: null) and the pattern that fills its `bytes`.
typedef struct Shadow {
  unsigned char* block;
  size_t bytes;
  uint64_t seed;
} Shadow;

enum { slots = 2000, most_bytes = 30000, large_bytes = 1100000 };

static void adopt(Shadow* shadow, void* block, size_t bytes, uint64_t* random) {
  REQUIRE(block != NULL, "an allocation of %zu bytes is null", bytes);
  EXPECT((uintptr_t)block % natural_alignment(bytes) == 0, "%p for %zu bytes", block, bytes);
  EXPECT(malloc_usable_size(block) >= bytes, "%zu usable bytes instead of %zu",
         malloc_usable_size(block), bytes);
  // Now and then it uses the whole usable size, as programs do.
  *shadow = (Shadow){block, next_random(random) % 4 == 0 ? malloc_usable_size(block) : bytes,
                     next_random(random)};
  fill(block, shadow->bytes, shadow->seed);
}

static void drop(Shadow* shadow) {
  EXPECT_FILLED(shadow->block, shadow->bytes, shadow->seed);
  free(shadow->block);
  *shadow = (Shadow){0};
}

static void reallocate(Shadow* shadow, size_t bytes, uint64_t* random) {
  const size_t kept = bytes < shadow->bytes ? bytes : shadow->bytes;
  unsigned char* moved = realloc(shadow->block, bytes);
  REQUIRE(moved != NULL, "realloc to %zu bytes is null", bytes);
  EXPECT_FILLED(moved, kept, shadow->seed);
  adopt(shadow, moved, bytes, random);
}

static void random_operation(Shadow* shadow, uint64_t* random) {
  const bool is_large = next_random(random) % 64 == 0;
  const size_t bytes = random_size(random, is_large ? large_bytes : most_bytes);
  const uint64_t kind = next_random(random) % 8;
  if (shadow->block != NULL) {
    EXPECT_FILLED(shadow->block, shadow->bytes, shadow->seed);
    if (kind < 2) {
      reallocate(shadow, bytes + 1, random);
    } else {
      drop(shadow);
    }
    return;
  }
  if (kind == 0) {
    unsigned char* block = calloc(1, bytes);
    for (size_t i = 0; block != NULL && i < bytes; ++i)
      EXPECT(block[i] == 0, "calloc(1, %zu): byte %zu is %d", bytes, i, block[i]);
    adopt(shadow, block, bytes, random);
  } else if (kind == 1) {
    const size_t alignment = (size_t)16 << next_random(random) % 9;
    void* block = memalign(alignment, bytes);
    EXPECT((uintptr_t)block % alignment == 0, "memalign(%zu, %zu) is %p", alignment, bytes, block);
    adopt(shadow, block, bytes, random);
  } else {
    adopt(shadow, malloc(bytes), bytes, random);
  }
}

static int compare_addresses(const void* a, const void* b) {
  const uintptr_t left = (uintptr_t)((const Shadow*)a)->block;
  const uintptr_t right = (uintptr_t)((const Shadow*)b)->block;
  return (left > right) - (left < right);
}

static void expect_no_overlap(const Shadow* shadow) {
  static Shadow sorted[slots];
  memcpy(sorted, shadow, sizeof sorted);
  qsort(sorted, slots, sizeof *sorted, compare_addresses);
  for (size_t i = 1; i < slots; ++i) {
    if (sorted[i - 1].block == NULL) continue;
    const unsigned char* end = sorted[i - 1].block + malloc_usable_size(sorted[i - 1].block);
    EXPECT(end <= sorted[i].block, "the usable bytes of %p end at %p, and a block begins at %p",
           (void*)sorted[i - 1].block, (const void*)end, (void*)sorted[i].block);
  }
}

CHECK("random operations in one thread") {
  static Shadow shadow[slots];
  uint64_t random = 2024;
  for (int step = 0; step < 60000; ++step) {
    random_operation(&shadow[next_random(&random) % slots], &random);
    if (step % 10000 == 0) expect_no_overlap(shadow);
  }
  expect_no_overlap(shadow);
  for (size_t i = 0; i < slots; ++i) {
    if (shadow[i].block != NULL) drop(&shadow[i]);
  }
}

// Slots shared by all threads, each with its own lock.
enum { shared_slots = 64 };
static struct {
  pthread_mutex_t lock;
  Shadow shadow;
} shared[shared_slots];

static void* steal_and_swap(void* argument) {
  uint64_t random = (uint64_t)(uintptr_t)argument;
  Shadow own[32] = {0};
  for (int step = 0; step < 15000; ++step) {
    Shadow* mine = &own[next_random(&random) % COUNT_OF(own)];
    if (next_random(&random) % 3 != 0) {
      random_operation(mine, &random);
      continue;
    }
    const size_t chosen = next_random(&random) % shared_slots;
    pthread_mutex_lock(&shared[chosen].lock);
    const Shadow stolen = shared[chosen].shadow;
    shared[chosen].shadow = *mine;
    pthread_mutex_unlock(&shared[chosen].lock);
    *mine = stolen;
    if (mine->block != NULL) EXPECT_FILLED(mine->block, mine->bytes, mine->seed);
  }
  for (size_t i = 0; i < COUNT_OF(own); ++i) {
    if (own[i].block != NULL) drop(&own[i]);
  }
  return NULL;
}

CHECK("random operations in threads that steal blocks") {
  enum { threads = 4 };
  pthread_t thread[threads];
  for (size_t i = 0; i < shared_slots; ++i) pthread_mutex_init(&shared[i].lock, NULL);
  start_threads(thread, threads, steal_and_swap);
  join_threads(thread, threads);
  for (size_t i = 0; i < shared_slots; ++i) {
    if (shared[i].shadow.block != NULL) drop(&shared[i].shadow);
  }
}
