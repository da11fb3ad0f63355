// Caches of pinned memory (RDMA, GPUs) learn from munmap and madvise which pages go away, and must
// learn it before that happens. This program records what is in its blocks, frees them or lets them
// grow, and checks which pages are gone: each must have been announced to the hooks (hooks.c, mode
// helper) while its content was still there. Meanwhile the hooks ask a second thread to use the
// heap, which ends the process if a call is made under a lock (exit_was_held).
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "beside.h"

#pragma weak beside_begin
#pragma weak beside_watch

enum { page = 4096, most_pages = 1 << 16, stamps = 5 };
// A hook's own block may be placed over one of them.
static const int stamps_at[stamps] = {200, 1000, 1800, 3000, 3800};

// A page that a cache treats as pinned.
typedef struct Pinned {
  uintptr_t address;
  bool has_stamp;  // otherwise a page of small blocks, in which the heap may change words
  atomic_bool was_announced;
  bool was_gone;  // when it was announced
} Pinned;

static Pinned pinned[most_pages];  // in address order
static atomic_size_t pages;
static int memory = -1, page_map = -1;
static const char* lately = "";  // the function that announced last
static int faults;

static uint64_t stamp_of(uintptr_t address) { return address * 0x9e3779b97f4a7c15U | 1; }

static bool is_resident(uintptr_t address) {
  uint64_t entry = 0;
  const off_t at = (off_t)(address / page * sizeof entry);
  return pread(page_map, &entry, sizeof entry, at) == sizeof entry && entry >> 62 != 0;
}

// Read through the kernel, as debuggers do, since the page may be inaccessible or gone.
static bool has_content(const Pinned* of) {
  if (!is_resident(of->address)) return false;
  for (int i = 0; of->has_stamp && i < stamps; ++i) {
    uint64_t stamp = 0;
    const off_t at = (off_t)(of->address + (uintptr_t)stamps_at[i]);
    if (pread(memory, &stamp, sizeof stamp, at) == sizeof stamp && stamp == stamp_of(of->address))
      return true;
  }
  return !of->has_stamp;
}

static void hear(const char* name, uintptr_t begin, uintptr_t end) {
  lately = name;
  size_t low = 0;
  size_t high = atomic_load(&pages);
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (pinned[middle].address < begin) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  for (size_t i = low; i < atomic_load(&pages) && pinned[i].address < end; ++i)
    if (!atomic_exchange(&pinned[i].was_announced, true))
      pinned[i].was_gone = !has_content(&pinned[i]);
}

static int compare(const void* left, const void* right) {
  const uintptr_t a = ((const Pinned*)left)->address;
  const uintptr_t b = ((const Pinned*)right)->address;
  return (a > b) - (a < b);
}

// Pins the whole pages in a block, with a stamp each, or as part of small blocks.
static size_t noted;
static void note(char* block, size_t bytes, bool has_stamp) {
  for (uintptr_t at = ((uintptr_t)block + page - 1) / page * page;
       at + page <= (uintptr_t)block + bytes; at += page) {
    if (noted == most_pages) return;
    const uint64_t stamp = stamp_of(at);
    for (int i = 0; has_stamp && i < stamps; ++i)
      memcpy((char*)at + stamps_at[i], &stamp, sizeof stamp);  // NOLINT
    pinned[noted++] = (Pinned){.address = at, .has_stamp = has_stamp};
  }
}

static void begin_watch(void) {
  qsort(pinned, noted, sizeof *pinned, compare);
  size_t kept = 0;
  for (size_t i = 0; i < noted; ++i)
    if (kept == 0 || pinned[kept - 1].address != pinned[i].address) pinned[kept++] = pinned[i];
  atomic_store(&pages, kept);
}

static void end_watch(const char* what) {
  size_t gone = 0;
  size_t unannounced = 0;
  size_t late = 0;
  for (size_t i = 0; i < atomic_load(&pages); ++i) {
    const bool is_gone = !has_content(&pinned[i]);
    gone += is_gone;
    unannounced += is_gone && !atomic_load(&pinned[i].was_announced);
    late += pinned[i].was_gone;
  }
  printf("%s: %zu of %zu pages are gone, %zu unannounced, %zu announced late\n", what, gone,
         atomic_load(&pages), unannounced, late);
  if (unannounced + late != 0) ++faults;
  atomic_store(&pages, 0);
  noted = 0;
}

// ---- what is watched ----

static void large_blocks(void) {
  enum { blocks = 12 };
  char* block[blocks];
  for (size_t i = 0; i < blocks; ++i) {
    const size_t bytes = (size_t)300000 << i % 6;
    block[i] = malloc(bytes);
    memset(block[i], 1, bytes);
    note(block[i], bytes, true);
  }
  begin_watch();
  for (size_t i = 0; i < blocks; ++i) free(block[i]);
  malloc_trim(0);
  end_watch("large blocks");
}

static void* free_all(void* blocks) {
  for (char** block = blocks; *block != NULL; ++block) free(*block);
  return NULL;
}

static void small_blocks(bool by_another) {
  enum { most = 40000 };
  static char* block[most + 1];
  size_t count = 0;
  for (size_t bytes = 0; bytes < (size_t)24 << 20 && count < most; ++count) {
    const size_t size = 100 + count * 37 % 4000;
    block[count] = malloc(size);
    memset(block[count], 1, size);
    // The page in its middle.
    note((char*)(((uintptr_t)block[count] + size / 2) / page * page), page, false);
    bytes += size;
  }
  block[count] = NULL;
  begin_watch();
  if (by_another) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_all, block) == 0) pthread_join(thread, NULL);
  } else {
    free_all(block);
  }
  malloc_trim(0);
  if (by_another) usleep(1300000);  // of housekeeping
  end_watch(by_another ? "small blocks freed by another thread" : "small blocks");
}

// Each size must leave its old place, or is extended in it.
static void growing_blocks(void) {
  for (size_t bytes = (size_t)1 << 20; bytes <= (size_t)16 << 20; bytes *= 2) {
    char* block = malloc(bytes);
    memset(block, 1, bytes);
    note(block, bytes, true);
    char* behind = malloc(bytes);
    begin_watch();
    char* grown = realloc(block, 2 * bytes);
    // What did not move is no longer of interest.
    if (grown == block) atomic_store(&pages, 0);
    free(behind);
    free(grown);
    malloc_trim(0);
    end_watch("growing block");
  }
}

static void many_calls(void) {
  for (size_t i = 0; i < 300; ++i) {
    const size_t bytes = (size_t)70000 << i % 8;
    char* block = malloc(bytes);
    memset(block, 1, bytes);
    char* grown = realloc(block, bytes * 2);
    free(grown != NULL ? grown : block);
    if (i % 32 == 0) malloc_trim(0);
  }
}

int main(void) {
  memory = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
  page_map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (memory < 0 || page_map < 0 || beside_watch == NULL) return 77;
  setvbuf(stdout, NULL, _IOLBF, 0);
  beside_begin();
  beside_watch(hear);
  large_blocks();
  small_blocks(false);
  small_blocks(true);
  many_calls();
  growing_blocks();
  if (faults != 0) printf("(the last call that was announced: %s)\n", lately);
  return faults != 0 ? 1 : 0;
}
