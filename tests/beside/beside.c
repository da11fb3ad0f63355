// A program that uses the heap in every way, for runs with a library of hooks: before the first
// constructor, in one thread and in many that come and go, in a forked child, and after main. It
// checks the contents of all blocks, and skips failed allocations: hooks may let system calls fail.
// `--idle` also sleeps for as long as a background thread waits before it purges; `--brief` does
// less of everything.
#include "beside.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma weak beside_begin

// ---- blocks that know what is in them ----

typedef struct Block {
  size_t words;  // in total
  uint64_t seed;
  uint64_t content[];
} Block;

enum {
  header_words = sizeof(Block) / sizeof(uint64_t),
  all_up_to = 64,
  stride = 511,
  all_pages_up_to = 16384
};

static _Noreturn void damaged(const Block* block, const char* where) {
  char line[160];  // (dprintf would allocate.)
  const int length = snprintf(line, sizeof line, "block %p of %zu words was overwritten (%s)\n",
                              (const void*)block, block->words, where);
  if (write(2, line, (size_t)length) < 0) _exit(2);
  _exit(1);
}

// The words that are written and checked: the first ones, one in each page of the first 128 KiB,
// then ever fewer, and the last.
static size_t following(size_t word, size_t words) {
  if (word + 1 >= words) return words;
  const size_t step = word < all_up_to ? 1 : word < all_pages_up_to ? stride : word / 2;
  const size_t next = word + step;
  return next < words ? next : words - 1;
}

static void fill(Block* block, size_t bytes, uint64_t seed) {
  block->words = bytes / sizeof(uint64_t);
  block->seed = seed;
  const size_t words = block->words - header_words;
  for (size_t i = 0; i < words; i = following(i, words)) block->content[i] = seed + i;
}

static void check_part(const Block* block, size_t bytes, const char* where) {
  const size_t words = block->words - header_words;
  for (size_t i = 0; i < words && (header_words + i + 1) * sizeof(uint64_t) <= bytes;
       i = following(i, words))
    if (block->content[i] != block->seed + i) damaged(block, where);
}

static void check(const Block* block, const char* where) { check_part(block, SIZE_MAX, where); }

static Block* obtain(uint64_t seed, size_t bytes) {
  bytes = (bytes < sizeof(Block) ? sizeof(Block) : bytes) + 7;
  bytes &= ~(size_t)7;
  Block* block = NULL;
  switch (seed % 8) {
    case 0:
      block = calloc(1, bytes);
      if (block != NULL && (block->words != 0 || block->seed != 0)) damaged(block, "calloc");
      break;
    case 1: {
      const size_t alignment = (size_t)16 << seed / 8 % 9;
      void* aligned = NULL;
      block = posix_memalign(&aligned, alignment, bytes) == 0 ? aligned : NULL;
      if ((uintptr_t)block % alignment != 0) damaged(block, "posix_memalign");
      break;
    }
    default:
      block = malloc(bytes);
  }
  if (block != NULL) fill(block, bytes, seed);
  return block;
}

static Block* grow(Block* block, size_t bytes) {
  const uint64_t seed = block->seed;
  bytes = (bytes + 7) & ~(size_t)7;
  Block* grown = realloc(block, bytes);
  if (grown == NULL) return block;
  check_part(grown, bytes, "realloc");
  fill(grown, bytes, seed);
  return grown;
}

static void drop(Block* block, const char* where) {
  if (block == NULL) return;
  check(block, where);
  free(block);
}

static uint64_t next_random(uint64_t* state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15U;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
  return z ^ z >> 27;
}

// All orders of magnitude from 16 bytes to 128 KiB.
static size_t some_size(uint64_t random) {
  const unsigned bits = 4 + (unsigned)(random % 14);
  return ((size_t)1 << bits) + (size_t)(random >> 8) % ((size_t)1 << bits);
}

// ---- what is done ----

static Block* early[8];

static void before_constructors(void) {
  for (size_t i = 0; i < 8; ++i) early[i] = obtain(i, (size_t)20 << 2 * i);
  drop(obtain(8, 3 << 20), "before constructors");
}
__attribute__((section(".preinit_array"),
               used)) static void (*const first)(void) = before_constructors;

static bool is_brief;

static void one_thread(void) {
  for (size_t i = 0; i < 8; ++i) drop(early[i], "before constructors"), early[i] = NULL;
  for (size_t bytes = 16; bytes <= (size_t)64 << 20; bytes *= is_brief ? 8 : 2) {
    Block* left = obtain(bytes / 16, bytes);
    Block* right = obtain(bytes + 1, bytes + bytes / 3);
    drop(left, "one thread");
    drop(right, "one thread");
  }
  for (uint64_t seed = 8; seed < (is_brief ? 9 : 11); ++seed) {
    Block* growing = obtain(seed, 100);
    for (size_t bytes = 200; growing != NULL && bytes < (size_t)40 << 20; bytes += bytes / 2)
      growing = grow(growing, bytes);
    if (growing != NULL) growing = grow(growing, 5000);
    drop(growing, "growth");
  }
}

// Blocks that threads leave to each other.
enum { boxes = 256, own_blocks = 200 };
static _Atomic(Block*) box[boxes];

static pthread_key_t key;
static bool has_key;

static void at_thread_end(void* block) {
  drop(block, "a thread's end");
  Block* last = obtain(16, 700);
  if (last != NULL) last = grow(last, 300000);
  drop(last, "a thread's end");
}

static void* one_of_many(void* number) {
  uint64_t random = (uintptr_t)number;
  Block* mine[own_blocks] = {NULL};
  Block* ended = obtain(2, 400);
  if (!has_key || pthread_setspecific(key, ended) != 0) drop(ended, "no key");
  for (int i = 0; i < 1500; ++i) {
    const uint64_t choice = next_random(&random);
    Block** place = &mine[choice % own_blocks];
    if (choice >> 32 & 1) {
      drop(atomic_exchange(&box[(choice >> 40) % boxes], *place), "another thread's");
    } else {
      drop(*place, "a thread's own");
    }
    *place = obtain(choice, some_size(choice >> 8));
    if (*place != NULL && (choice >> 33 & 15) == 0) *place = grow(*place, 2 * some_size(choice));
  }
  for (int i = 0; i < own_blocks; ++i) drop(mine[i], "at the end");
  Block* large = obtain(3, (size_t)6 << 20);
  drop(large, "a thread's large block");
  return NULL;
}

static void many_threads(void) {
  enum { at_once = 4 };
  const uintptr_t waves = is_brief ? 1 : 3;
  has_key = pthread_key_create(&key, at_thread_end) == 0;
  for (uintptr_t wave = 0; wave < waves; ++wave) {
    pthread_t thread[at_once];
    bool runs[at_once];
    for (uintptr_t i = 0; i < at_once; ++i)
      runs[i] = pthread_create(&thread[i], NULL, one_of_many, (void*)(wave * at_once + i)) == 0;
    for (int i = 0; i < at_once; ++i)
      if (runs[i]) pthread_join(thread[i], NULL);
  }
  for (int i = 0; i < boxes; ++i) drop(atomic_exchange(&box[i], NULL), "left behind");
}

// Enough that memory is purged.
static void burst(void) {
  enum { most = 12000 };
  static Block* block[most];
  uint64_t random = 5;
  size_t count = 0;
  for (size_t bytes = 0; count < most && bytes < (size_t)(is_brief ? 20 : 50) << 20; ++count) {
    const size_t size = some_size(next_random(&random));
    bytes += size;
    block[count] = obtain(random, size);
  }
  for (size_t i = 0; i < count; i += 2) drop(block[i], "of a burst"), block[i] = NULL;
  malloc_trim(0);
  for (size_t i = 0; i < count; ++i) drop(block[i], "of a burst"), block[i] = NULL;
  malloc_trim(0);
}

static void* work_on(void* number) {
  for (int i = 0; i < 3; ++i) one_of_many(number);
  return NULL;
}

static void fork_among_threads(void) {
  pthread_t thread[2];
  bool runs[2];
  for (uintptr_t i = 0; i < 2; ++i)
    runs[i] = pthread_create(&thread[i], NULL, work_on, (void*)(100 + i)) == 0;
  Block* inherited = obtain(18, 5000);
  for (int i = 0; i < (is_brief ? 2 : 4); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      drop(inherited, "inherited");
      for (uint64_t k = 0; k < 300; ++k) drop(obtain(k, some_size(k * 11)), "a child's");
      drop(obtain(2, (size_t)9 << 20), "a child's");
      _exit(0);
    }
    int status = 0;
    if (child > 0 && waitpid(child, &status, 0) == child && status != 0) {
      dprintf(2, "the child of a fork ended with wait status %#x\n", (unsigned)status);
      _exit(1);
    }
  }
  drop(inherited, "inherited");
  for (int i = 0; i < 2; ++i)
    if (runs[i]) pthread_join(thread[i], NULL);
}

static void at_exit(void) {
  for (uint64_t seed = 0; seed < 100; ++seed) drop(obtain(seed, some_size(seed)), "at exit");
  drop(obtain(2, (size_t)5 << 20), "at exit");
}

int main(int argc, char** argv) {
  is_brief = argc > 1 && argv[1][2] == 'b';
  atexit(at_exit);
  one_thread();
  if (beside_begin != NULL) beside_begin();
  many_threads();
  burst();
  if (argc > 1 && !is_brief) usleep(1300000);
  fork_among_threads();
  one_thread();
}
