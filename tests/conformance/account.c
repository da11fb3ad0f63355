// tsmalloc/tsmalloc.h: what the library reports of its memory, and the functions that ask more of a
// block than malloc does. Under any other allocator, the header's own answers. account_cxx.cpp
// compiles the same checks as C++.
#include <tsmalloc/arena.h>
#include <tsmalloc/tsmalloc.h>
// First, to show that the header needs no other.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

// Whether the library is the engine, preloaded or linked in: the others know less.
static bool is_engine(void) {
  void* const block = malloc(opaque(100));
  const bool knows = ts_block_of(block, NULL, NULL) == 1;
  free(block);
  return knows;
}

// ---- blocks ----

CHECK("ts_expand grows where the block is, or changes nothing") {
  for (size_t bytes = 1; bytes < 300000; bytes += 1 + bytes / 3) {
    char* const block = (char*)malloc(bytes);
    REQUIRE(block != NULL, "null");
    fill(block, bytes, bytes);
    const size_t usable = malloc_usable_size(block);
    EXPECT(ts_expand(block, usable) == 1, "%zu to its %zu usable bytes", bytes, usable);
    EXPECT(ts_expand(block, opaque(SIZE_MAX)) == 0, "%zu to SIZE_MAX", bytes);
    EXPECT(ts_expand(block, opaque(PTRDIFF_MAX)) == 0, "%zu to PTRDIFF_MAX", bytes);
    if (ts_expand(block, 2 * usable) == 1)
      EXPECT(malloc_usable_size(block) >= 2 * usable, "%zu has %zu", bytes,
             malloc_usable_size(block));
    EXPECT_FILLED(block, bytes, bytes);
    free(block);
  }
  EXPECT(ts_expand(opaque_pointer(NULL), 10) == 0, "null was expanded");
}

CHECK("ts_expand shortens a large block, and makes it long again") {
  if (!is_engine()) skip_check("of the engine's large blocks");
  char* const block = (char*)malloc(16 << 20);
  REQUIRE(block != NULL, "null");
  // Its end is returned, and it may grow into that again.
  EXPECT(ts_expand(block, 1 << 20) == 1, "it cannot be shorter");
  EXPECT(ts_expand(block, 16 << 20) == 1, "what lies behind is free");
  fill(block, 16 << 20, 1);
  free(block);
}

CHECK("ts_rezalloc zeroes what is new") {
  uint64_t random = 3;
  for (int i = 0; i < 300; ++i) {
    size_t bytes = random_size(&random, 100000);
    char* block = (char*)ts_rezalloc(NULL, 0, bytes + 1);
    REQUIRE(block != NULL && first_nonzero(block, bytes + 1) == bytes + 1, "%zu bytes", bytes + 1);
    fill(block, bytes + 1, 5);
    for (int step = 0; step < 4; ++step) {
      // The program uses only part of the block: what follows is garbage to it.
      const size_t old = bytes / 2;
      fill(block, bytes + 1, 5);
      const size_t next = random_size(&random, 200000) + 1;
      char* const moved = (char*)ts_rezalloc(block, old, next);
      REQUIRE(moved != NULL, "null");
      block = moved;
      const size_t kept = old < next ? old : next;
      EXPECT_FILLED(block, kept, 5);
      if (old < next)
        EXPECT(first_nonzero(block + old, next - old) == next - old, "%zu to %zu", old, next);
      bytes = next - 1;
    }
    EXPECT(ts_rezalloc(block, bytes, 0) == NULL, "to no bytes");
    fill(block, bytes + 1, 6);  // it is still in use
    EXPECT(ts_rezalloc(block, bytes, opaque(SIZE_MAX)) == NULL, "to SIZE_MAX bytes");
    EXPECT_FILLED(block, bytes + 1, 6);
    free(block);
  }
}

CHECK("ts_alloc_at_least tells what there is") {
  uint64_t random = 4;
  for (int i = 0; i < 1000; ++i) {
    const size_t bytes = random_size(&random, 200000);
    const size_t alignment = i % 3 == 0 ? 0 : (size_t)1 << i % 16;
    size_t usable = 4711;
    void* const block = ts_alloc_at_least(bytes, alignment, &usable);
    REQUIRE(block != NULL, "%zu bytes at %zu: null", bytes, alignment);
    EXPECT(usable >= bytes, "%zu usable bytes of %zu", usable, bytes);
    EXPECT(alignment == 0 || (uintptr_t)block % alignment == 0, "%p at %zu", block, alignment);
    fill(opaque_pointer(block), usable, bytes);
    EXPECT_FILLED(block, usable, bytes);
    free(block);
  }
  static const size_t bad[] = {3, 24, 48, 4097, SIZE_MAX};
  for (size_t i = 0; i < COUNT_OF(bad); ++i) {
    size_t usable = 4711;
    EXPECT(ts_alloc_at_least(10, bad[i], &usable) == NULL && usable == 0,
           "alignment %zu: %zu usable", bad[i], usable);
  }
  size_t usable = 4711;
  EXPECT(ts_alloc_at_least(opaque(SIZE_MAX), 0, &usable) == NULL && usable == 0, "%zu", usable);
  free(ts_alloc_at_least(100, 0, NULL));
}

// ---- figures ----

static size_t sum_of(const ts_statistics* s) {
  return s->small_bytes + s->large_bytes + s->bin_bytes + s->waiting_bytes + s->slab_bytes +
         s->ended_bytes + s->page_bytes + s->returned_bytes;
}

CHECK("the figures of ts_stats add up") {
  enum { count = 20000, large = 8 };
  static void* blocks[count];
  void* large_block[large];
  size_t live = 0;
  for (size_t i = 0; i < count; ++i) blocks[i] = malloc(16 * (i % 64 + 1));
  for (size_t i = 0; i < large; ++i) large_block[i] = malloc(1 << 20);
  for (size_t i = 0; i < count; ++i) {
    if (i % 3 != 0) {
      free(blocks[i]);
      blocks[i] = NULL;
    } else {
      live += ts_usable_size(blocks[i]);
    }
  }
  ts_statistics s;
  memset(&s, 0xff, sizeof s);
  EXPECT(ts_stats(&s, sizeof s) == ts_available(), "%d", ts_stats(&s, sizeof s));
  EXPECT(sum_of(&s) == s.mapped_bytes, "the parts are %zu bytes, the whole %zu", sum_of(&s),
         s.mapped_bytes);
  if (!ts_available()) {
    EXPECT(first_nonzero(&s, sizeof s) == sizeof s, "without a library, something is not 0");
  } else if (is_engine()) {
    EXPECT(s.large_bytes >= (size_t)large << 20 && s.large_bytes < (large + 1) << 20, "%zu",
           s.large_bytes);
    // Also of the C library's blocks, such as stdio buffers.
    EXPECT(s.small_bytes >= live && s.small_bytes < live + live / 100 + 20000,
           "%zu bytes are small blocks, %zu of them the test's", s.small_bytes, live);
    EXPECT(s.table_bytes > 0 && s.growths > 0 && s.heaps > 0, "a figure is 0");
  } else {
    EXPECT(s.small_bytes >= live, "%zu bytes in use, not %zu", s.small_bytes, live);
  }
  for (size_t i = 0; i < count; ++i) free(blocks[i]);
  for (size_t i = 0; i < large; ++i) free(large_block[i]);
}

CHECK("ts_stats fills what fits") {
  struct {
    ts_statistics s;
    char behind[16];
  } room;
  free(malloc(opaque(100)));
  memset(&room, 0x5a, sizeof room);
  ts_stats(&room.s, 2 * sizeof(size_t));
  EXPECT(room.s.mapped_bytes != 0 || !ts_available(), "the first figure is missing");
  EXPECT(room.s.large_bytes == (size_t)0x5a5a5a5a5a5a5a5a, "what lies behind was written to");
  memset(&room, 0x5a, sizeof room);
  ts_stats(&room.s, sizeof room);  // a program compiled with a newer header
  EXPECT(first_nonzero(room.behind, sizeof room.behind) == sizeof room.behind,
         "what is unknown is not 0");
}

static void* use_and_wait(void* argument) {
  enum { count = 1000 };
  static __thread void* blocks[count];
  pthread_barrier_t* const barrier = (pthread_barrier_t*)argument;
  for (size_t i = 0; i < count; ++i) blocks[i] = malloc(200);
  for (size_t i = 0; i < count; ++i) free(blocks[i]);
  pthread_barrier_wait(barrier);
  pthread_barrier_wait(barrier);
  ts_thread_flush();
  pthread_barrier_wait(barrier);
  pthread_barrier_wait(barrier);
  return NULL;
}

CHECK("ts_stats tells of all threads' bins, ts_thread_flush empties them") {
  if (!is_engine()) skip_check("of the engine's bins");
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, 2);
  const pthread_t thread = start_thread(use_and_wait, &barrier);
  ts_statistics s;
  pthread_barrier_wait(&barrier);
  ts_thread_flush();
  ts_stats(&s, sizeof s);
  const size_t before = s.bin_bytes;
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  ts_stats(&s, sizeof s);
  EXPECT(before >= 2000, "another thread's bins have %zu bytes", before);
  EXPECT(s.bin_bytes < before / 4, "%zu bytes of %zu after a flush", s.bin_bytes, before);
  pthread_barrier_wait(&barrier);
  pthread_join(thread, NULL);
  ts_stats(&s, sizeof s);
  EXPECT(s.ended_heaps >= 1, "no heap of an ended thread");
}

CHECK("ts_purge tells how much went back") {
  enum { count = 4000, bytes = 8000 };
  static void* blocks[count];
  for (size_t i = 0; i < count; ++i) blocks[i] = filled(bytes, i);
  ts_statistics before;
  ts_stats(&before, sizeof before);
  for (size_t i = 1; i < count; ++i) free(blocks[i]);
  const size_t gone = ts_purge();
  ts_statistics after;
  ts_stats(&after, sizeof after);
  if (is_engine()) {
    EXPECT(after.page_bytes < 1 << 20, "%zu bytes of free pages are left", after.page_bytes);
    EXPECT(after.purged_bytes - before.purged_bytes >= (size_t)count * bytes * 9 / 10,
           "%zu bytes went back", after.purged_bytes - before.purged_bytes);
    EXPECT(gone <= after.purged_bytes - before.purged_bytes, "%zu", gone);
    const size_t more = ts_purge();
    EXPECT(more < 1 << 20, "%zu bytes more went back after %zu", more, gone);
    EXPECT(ts_trim(0) == 0, "ts_trim(0) gives back when nothing is left");
  }
  EXPECT_FILLED(blocks[0], bytes, 0);
  free(blocks[0]);
}

// Each slab keeps a block, so only OS pages within slabs can be purged.
CHECK("ts_trim tells of pages within slabs") {
  enum { count = 200000, bytes = 100, stays = 60 };
  static void* blocks[count];
  for (size_t i = 0; i < count; ++i) blocks[i] = filled(bytes, i);
  ts_trim(0);
  for (size_t i = 0; i < count; ++i) {
    if (i % stays != 0) free(blocks[i]);
  }
  if (is_engine()) EXPECT(ts_trim(0) == 1, "pages within slabs went back untold");
  ts_trim(0);
  const size_t more = ts_purge();
  EXPECT(more == 0, "%zu bytes went back again", more);
  for (size_t i = 0; i < count; i += stays) {
    EXPECT_FILLED(blocks[i], bytes, i);
    free(blocks[i]);
  }
}

// ---- reports ----

static size_t report(int format, char* text, size_t most) {
  int ends[2];
  REQUIRE(pipe(ends) == 0, "pipe: %s", strerror(errno));
  const int result = ts_stats_write(ends[1], format);
  EXPECT(result == (ts_available() ? 0 : ENOSYS), "ts_stats_write is %d", result);
  close(ends[1]);
  const ssize_t length = read(ends[0], text, most - 1);
  close(ends[0]);
  REQUIRE(length >= 0, "read");
  text[length] = '\0';
  return (size_t)length;
}

CHECK("the reports have their form") {
  char text[8192];
  const size_t bytes = report(TSMALLOC_TEXT, text, sizeof text);
  EXPECT(ts_available() == 0 || (bytes > 100 && text[bytes - 1] == '\n'), "%zu bytes", bytes);
  report(TSMALLOC_JSON, text, sizeof text);
  if (ts_available()) {
    EXPECT(strncmp(text, "{\"schema\":\"tsmalloc-stats/1\",\"small_blocks\":", 43) == 0, "%s",
           text);
    EXPECT(strcmp(text + strlen(text) - 2, "}\n") == 0 && strchr(text, '\n')[1] == '\0', "%s",
           text);
  }
  report(TSMALLOC_PROMETHEUS, text, sizeof text);
  if (ts_available()) {
    EXPECT(strstr(text, "\ntsmalloc_bytes{part=\"small_blocks\"} ") != NULL, "%s", text);
    EXPECT(strstr(text, "# TYPE tsmalloc_purged_bytes_total counter\n") != NULL, "%s", text);
    EXPECT(strstr(text, "\ntsmalloc_heaps ") != NULL, "%s", text);
  }
}

CHECK("the reports tell their errors") {
  if (!ts_available()) skip_check("without a library there are no reports");
  EXPECT(ts_stats_write(-1, TSMALLOC_JSON) == EBADF, "%d", ts_stats_write(-1, TSMALLOC_JSON));
  EXPECT(ts_stats_write(2, 17) == EINVAL, "%d", ts_stats_write(2, 17));
  const int full = open("/dev/full", O_WRONLY);
  REQUIRE(full >= 0, "/dev/full");
  errno = 4711;
  EXPECT(ts_stats_write(full, TSMALLOC_TEXT) == ENOSPC, "%d", ts_stats_write(full, TSMALLOC_TEXT));
  EXPECT(errno == 4711, "errno is %d", errno);
  close(full);
}

// ---- addresses ----

CHECK("ts_block_of finds the block of any address") {
  ts_extent block;
  ts_extent pages;
  memset(&block, 0x5a, sizeof block);
  static const char variable = 1;
  EXPECT(ts_block_of(&variable, &block, &pages) == 0, "of a static variable");
  EXPECT(ts_block_of(&block, &block, &pages) == 0, "of the stack");
  EXPECT(ts_block_of(NULL, &block, &pages) == 0, "of null");
  EXPECT(ts_block_of(opaque_pointer((void*)SIZE_MAX), NULL, NULL) == 0, "of the last address");
  EXPECT(block.size == (size_t)0x5a5a5a5a5a5a5a5a, "what failed wrote something");
  EXPECT(ts_owns(NULL) == 0 && ts_owns(&variable) == 0, "a variable");
  EXPECT(ts_owns(opaque_pointer((void*)(SIZE_MAX - 15))) == 0, "the last address");
  if (!is_engine()) return;
  uint64_t random = 9;
  for (int i = 0; i < 500; ++i) {
    const size_t bytes = random_size(&random, 300000) + 1;
    char* const p = (char*)malloc(bytes);
    REQUIRE(p != NULL, "null");
    const size_t at = next_random(&random) % bytes;
    REQUIRE(ts_block_of(p + at, &block, &pages) == 1, "byte %zu of %zu", at, bytes);
    EXPECT(block.address == p && block.size == ts_usable_size(p), "%p, %zu bytes; not %p, %zu",
           block.address, block.size, (void*)p, ts_usable_size(p));
    EXPECT(block.state == TSMALLOC_USED && block.used_size == block.size, "state %d", block.state);
    EXPECT((const char*)pages.address <= p &&
               p + block.size <= (const char*)pages.address + pages.size,
           "its pages are elsewhere");
    EXPECT(pages.state == (bytes <= TSMALLOC_MAX_SMALL_SIZE ? TSMALLOC_SLAB : TSMALLOC_USED),
           "%zu bytes: pages of state %d", bytes, pages.state);
    if (pages.state == TSMALLOC_SLAB)
      EXPECT(pages.block_size == block.size && pages.used_size >= block.size &&
                 pages.heap == block.heap && block.heap != 0,
             "blocks of %zu bytes, %zu in use", pages.block_size, pages.used_size);
    EXPECT(ts_owns(p) == 1, "%zu bytes are not owned", bytes);
    EXPECT(at == 0 || ts_owns(p + at) == 0, "byte %zu is owned", at);
    free(p);
    if (ts_block_of(p, &block, NULL) == 1)
      EXPECT(block.state != TSMALLOC_USED, "a freed block is in use");
    EXPECT(ts_owns(p) == 0, "a freed block is owned");
  }
}

// ---- visits ----

// The engine visits in address order.
static bool is_in_order;

typedef struct Sums {
  size_t pieces;
  size_t bytes;
  size_t used;
  const void* wanted;
  int wanted_state;
  int ends_after;
  const void* last;
} Sums;

static int add_piece(const ts_extent* extent, void* argument) {
  Sums* const sums = (Sums*)argument;
  ++sums->pieces;
  sums->bytes += extent->size;
  sums->used += extent->used_size;
  if (extent->address == sums->wanted) sums->wanted_state = extent->state;
  EXPECT(!is_in_order || extent->address > sums->last, "not in the order of addresses");
  sums->last = extent->address;
  return sums->ends_after != 0 && (int)sums->pieces == sums->ends_after ? 77 : 0;
}

static int allocate_in_visit(const ts_extent* extent, void* argument) {
  (void)extent;
  ++*(size_t*)argument;
  for (int i = 0; i < 3; ++i) free(malloc((size_t)40000 * (unsigned)i + 100));
  return 0;
}

CHECK("ts_visit visits all pages") {
  is_in_order = is_engine();
  void* const block = malloc(300000);
  ts_extent pages;
  memset(&pages, 0, sizeof pages);
  ts_block_of(block, NULL, &pages);
  Sums sums = {0, 0, 0, pages.address, -1, 0, NULL};
  const int result = ts_visit(TSMALLOC_PAGES, add_piece, &sums);
  EXPECT(ts_visit(99, add_piece, &sums) == -1, "an unknown kind");
  if (is_engine()) {
    ts_statistics s;
    ts_stats(&s, sizeof s);
    EXPECT(result == 0 && sums.bytes == s.mapped_bytes, "%d; %zu bytes, not %zu", result,
           sums.bytes, s.mapped_bytes);
    EXPECT(sums.wanted_state == TSMALLOC_USED, "state %d", sums.wanted_state);
    Sums two = {0, 0, 0, NULL, -1, 2, NULL};
    EXPECT(ts_visit(TSMALLOC_PAGES, add_piece, &two) == 77 && two.pieces == 2, "%zu", two.pieces);
    size_t visits = 0;
    EXPECT(ts_visit(TSMALLOC_PAGES, allocate_in_visit, &visits) == 0 && visits != 0, "%zu", visits);
    visits = 0;
    EXPECT(ts_visit(TSMALLOC_BLOCKS, allocate_in_visit, &visits) == 0 && visits != 0, "%zu",
           visits);
  } else {
    EXPECT(result == -1, "%d", result);
  }
  free(block);
}

CHECK("ts_visit visits all blocks") {
  is_in_order = is_engine();
  void* const block = malloc(777);
  void* const freed = malloc(777);
  free(freed);
  Sums sums = {0, 0, 0, block, -1, 0, NULL};
  const int result = ts_visit(TSMALLOC_BLOCKS, add_piece, &sums);
  EXPECT(result == (ts_available() ? 0 : -1), "%d", result);
  if (ts_available()) {
    EXPECT(sums.wanted_state == TSMALLOC_USED, "state %d", sums.wanted_state);
    Sums again = {0, 0, 0, freed, -1, 0, NULL};
    ts_visit(TSMALLOC_BLOCKS, add_piece, &again);
    EXPECT(again.wanted_state != TSMALLOC_USED, "a freed block is in use");
  }
  if (is_engine()) {
    ts_statistics s;
    ts_stats(&s, sizeof s);
    EXPECT(sums.used == s.small_bytes + s.large_bytes, "%zu bytes in use, not %zu", sums.used,
           s.small_bytes + s.large_bytes);
  }
  free(block);
}

enum { dropped_blocks = 40000, dropped_bytes = 200 };
static void* dropped[dropped_blocks];
static ts_arena* destroyed;
static int drop_and_allocate(const ts_extent* extent, void* argument) {
  size_t* const used = (size_t*)argument;
  if (dropped[0] != NULL) {
    for (size_t i = 0; i < dropped_blocks; ++i) free(dropped[i]);
    dropped[0] = NULL;
    ts_arena_destroy(destroyed);
    for (int i = 0; i < 200; ++i) fill(malloc(100000), 100000, 0);
  }
  *used += extent->state == TSMALLOC_USED && extent->block_size <= 256 ? 1 : 0;
  return 0;
}

// Slabs that a visit empties are reused for other blocks before the walk reaches them.
CHECK("a visit frees blocks") {
  if (!is_engine()) return;
  destroyed = ts_arena_create();
  for (size_t i = 0; i < dropped_blocks; ++i) {
    dropped[i] = malloc(dropped_bytes);
    REQUIRE(dropped[i] != NULL && ts_arena_malloc(destroyed, dropped_bytes) != NULL, "null");
  }
  size_t used = 0;
  EXPECT(ts_visit(TSMALLOC_BLOCKS, drop_and_allocate, &used) == 0, "the walk did not end");
  EXPECT(used < 1000, "%zu blocks are in use that were freed", used);
  EXPECT(ts_visit(TSMALLOC_BLOCKS, NULL, NULL) == -1, "there is nothing to call");
}

static volatile int is_done;
static void* allocate_until_done(void* argument) {
  uint64_t random = (uintptr_t)argument;
  void* block[64] = {NULL};
  while (!is_done) {
    void** const one = &block[next_random(&random) % COUNT_OF(block)];
    free(*one);
    *one = malloc(random_size(&random, 100000));
  }
  for (size_t i = 0; i < COUNT_OF(block); ++i) free(block[i]);
  return NULL;
}

CHECK("questions while other threads go on") {
  is_in_order = is_engine();
  pthread_t thread[3];
  start_threads(thread, COUNT_OF(thread), allocate_until_done);
  void* const own = malloc(5000);
  for (int i = 0; i < 200; ++i) {
    ts_statistics s;
    ts_stats(&s, sizeof s);
    EXPECT(sum_of(&s) == s.mapped_bytes, "%zu, not %zu", sum_of(&s), s.mapped_bytes);
    Sums sums = {0, 0, 0, NULL, -1, 0, NULL};
    EXPECT(ts_visit(TSMALLOC_PAGES, add_piece, &sums) == (is_engine() ? 0 : -1), "round %d", i);
    ts_extent block;
    if (ts_block_of(own, &block, NULL) == 1)
      EXPECT(block.address == own && block.state == TSMALLOC_USED, "state %d", block.state);
    if (i % 20 == 0) ts_purge();
    ts_thread_flush();
  }
  is_done = 1;
  join_threads(thread, COUNT_OF(thread));
  free(own);
}
