// A process may have some 65,000 mappings; beyond that it gets no memory although there is enough.
// The allocator itself needs few. It copes with what is left, fails properly, reports the reason
// once, and recovers when mappings become available.
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

static size_t page;

static size_t mapping_limit(void) {
  const long limit = figure_of("/proc/sys/vm/max_map_count", "");
  if (limit < 0) skip_check("the limit is not to be read");
  if (limit > 300000) skip_check("this system allows too many mappings to use them up");
  return (size_t)limit;
}

static char* wasted;
static size_t wasted_bytes;

// Uses up mappings until `left` of them remain, by changing the protection of every second page of
// a range.
static void use_up_mappings(size_t left) {
  const size_t limit = mapping_limit();
  wasted_bytes = 2 * limit * page;
  wasted = mmap(NULL, wasted_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(wasted != MAP_FAILED, "mmap: %s", strerror(errno));
  size_t used = 0;
  while (mprotect(wasted + 2 * used * page, page, PROT_READ) == 0) ++used;
  REQUIRE(errno == ENOMEM && used > limit / 3, "%zu mappings: %s", used, strerror(errno));
  // Each page that becomes like its neighbours releases two mappings.
  for (size_t i = 0; i < left; i += 2)
    mprotect(wasted + 2 * (used - 1 - i / 2) * page, page, PROT_NONE);
}

enum { most_blocks = 60000 };
static struct {
  char* begin;
  size_t bytes;
} block[most_blocks];

static size_t take_what_is_there(uint64_t seed, size_t limit_bytes, size_t max_bytes) {
  size_t count = 0;
  size_t taken = 0;
  for (; count < most_blocks && taken < limit_bytes; ++count) {
    const size_t bytes = 1 + random_size(&seed, max_bytes);
    errno = 0;
    char* const begin = malloc(bytes);
    if (begin == NULL) {
      EXPECT(errno == ENOMEM, "malloc(%zu) failed with errno %d", bytes, errno);
      break;
    }
    block[count].begin = begin;
    block[count].bytes = bytes;
    fill(begin, bytes < 500 ? bytes : 500, count);
    taken += bytes;
  }
  return count;
}

static void free_blocks(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const size_t compared = block[i].bytes < 500 ? block[i].bytes : 500;
    EXPECT_FILLED(block[i].begin, compared, i);
    errno = 4711;
    free(block[i].begin);
    EXPECT(errno == 4711, "free set errno to %d", errno);
  }
}

static void resize_all(size_t count) {
  for (size_t i = 0; i < count; i += 3) {
    const size_t bytes = block[i].bytes * 2;
    char* const moved = realloc(block[i].begin, bytes);
    if (moved == NULL) continue;
    block[i].begin = moved;
    block[i].bytes = bytes;
    fill(moved, bytes < 500 ? bytes : 500, i);
  }
}

static void* work_in_thread(void* argument) {
  uint64_t random = (uint64_t)(uintptr_t)argument;
  for (int i = 0; i < 300; ++i) free(opaque_pointer(malloc(random_size(&random, 100000))));
  return NULL;
}

// Replaces standard error by a pipe, and returns the other end.
static int begin_listening(void) {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0, "pipe2: %s", strerror(errno));
  REQUIRE(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO, "dup2: %s", strerror(errno));
  close(ends[1]);
  return ends[0];
}

CHECK("few mappings are left") {
  static const size_t left[] = {0, 4, 16, 2, 6, 8, 12, 24, 40};
  const size_t rounds = check_is_long() ? COUNT_OF(left) : 3;
  for (size_t i = 0; i < rounds; ++i) {
    use_up_mappings(left[i]);
    for (uint64_t round = 0; round < 3; ++round) {
      const size_t count = take_what_is_there(round, 64 << 20, round == 0 ? 2000 : 3 << 20);
      resize_all(count);
      pthread_t thread;
      if (pthread_create(&thread, NULL, work_in_thread, (void*)(uintptr_t)(round + 1)) == 0)
        pthread_join(thread, NULL);
      malloc_trim(0);
      free_blocks(count);
    }
    munmap(wasted, wasted_bytes);
    const size_t count = take_what_is_there(9, 64 << 20, 1 << 20);
    size_t bytes = 0;
    for (size_t b = 0; b < count; ++b) bytes += block[b].bytes;
    EXPECT(bytes >= 64 << 20, "only %zu bytes when mappings are to be had again", bytes);
    free_blocks(count);
  }
}

CHECK("a refusal for want of mappings is explained once") {
  const int said = begin_listening();
  use_up_mappings(0);
  size_t failed = 0;
  for (size_t i = 0; i < 1000; ++i) failed += malloc(opaque((size_t)64 << 20)) == NULL;
  if (failed == 0) skip_check("it gets 64 GB without a mapping");
  char text[4000] = "";
  const ssize_t got = read(said, text, sizeof text - 1);
  if (got <= 0 && !library_is_ours()) skip_check("it explains nothing");
  REQUIRE(got > 0, "nothing was said");
  const char* const line = strstr(text, "mappings");
  EXPECT(line != NULL && strstr(text, "vm.max_map_count") != NULL, "\"%s\"", text);
  EXPECT(line == NULL || strstr(line + 1, "out of memory") == NULL, "it was said twice: %s", text);
  munmap(wasted, wasted_bytes);
}

// Other reasons are not mistaken for this one.
CHECK("other refusals are not taken for it") {
  const int said = begin_listening();
  limit_resource(RLIMIT_AS, 1 << 30);
  for (size_t i = 0; i < 100; ++i) {
    errno = 0;
    EXPECT(malloc(opaque((size_t)2 << 30)) == NULL && errno == ENOMEM, "errno %d", errno);
  }
  char text[1000] = "";
  EXPECT(read(said, text, sizeof text - 1) <= 0, "it said \"%s\"", text);
}

// Blocks of all sizes, little touched, and half of them freed. Only the engine promises this.
CHECK("gigabytes in pieces need few mappings") {
  enum { blocks = 9000 };
  const size_t before = mapping_count();
  uint64_t random = 3;
  size_t total = 0;
  for (size_t i = 0; i < blocks; ++i) {
    block[i].bytes = 4096 + random_size(&random, 4 << 20);
    block[i].begin = malloc(block[i].bytes);
    REQUIRE(block[i].begin != NULL, "malloc(%zu) is null", block[i].bytes);
    block[i].begin[0] = 1;
    total += block[i].bytes;
  }
  for (size_t i = 0; i < blocks; i += 2) free(block[i].begin);
  malloc_trim(0);
  const size_t more = mapping_count() - before;
  report_figure("%zu MB in %d blocks, every second freed: %zu mappings", total >> 20, (int)blocks,
                more);
  EXPECT(more < 200 || !library_is_engine(), "%zu mappings", more);
}

// As many blocks as fit into 60 GiB, each touching a page: their number must not make requests
// fail. The engine and the hardened library promise that.
static void sixty_gigabytes_in_pieces(size_t min_bytes, size_t max_bytes) {
  enum { most = 1 << 20 };
  const size_t wanted = (size_t)60 << 30;
  if (!library_is_engine() && !library_is_hardened()) skip_check("it does not promise this");
  static char* begin[most];
  const size_t before = mapping_count();
  uint64_t random = 5;
  size_t total = 0;
  size_t count = 0;
  size_t refused = 0;
  for (; total < wanted && count < most; ++count) {
    const size_t bytes = min_bytes + next_random(&random) % (max_bytes - min_bytes + 1);
    begin[count] = malloc(bytes);
    if (begin[count] == NULL) break;
    begin[count][bytes / 2] = 1;
    total += bytes;
  }
  report_figure("%zu GiB in %zu blocks: %zu mappings", total >> 30, count,
                mapping_count() - before);
  EXPECT(total >= wanted, "malloc is null after %zu MiB", total >> 20);
  // In any order, with others allocated in their place.
  for (size_t i = 0; i < count / 2; ++i) {
    const size_t at = next_random(&random) % count;
    free(begin[at]);
    const size_t bytes = min_bytes + next_random(&random) % (max_bytes - min_bytes + 1);
    begin[at] = malloc(bytes);
    refused += begin[at] == NULL;
    if (begin[at] != NULL) begin[at][bytes / 2] = 1;
  }
  for (size_t i = 0; i < count; i += 97) {
    char* const larger = realloc(begin[i], 3 << 20);
    if (larger != NULL) begin[i] = larger;
    refused += larger == NULL;
  }
  EXPECT(refused == 0, "%zu requests are refused when others were freed", refused);
  // The program's own mappings still find room.
  void* const own = mmap(NULL, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(own != MAP_FAILED, "mmap: %s", strerror(errno));
  munmap(own, page);
  for (size_t i = 0; i < count; ++i) free(begin[i]);
  malloc_trim(0);
  report_figure("freed: %zu mappings", mapping_count() - before);
}
CHECK("60 GiB in blocks of 64 KiB to 2 MiB") {
  mapping_limit();
  // A debug level's checks take time quadratic in the number of blocks.
  if (HEAP_DEBUG_LEVEL > 1) skip_check("the library checks all blocks again and again");
  sixty_gigabytes_in_pieces(65536, 2 << 20);
}
CHECK("60 GiB in blocks of one size") {
  mapping_limit();
  if (HEAP_DEBUG_LEVEL > 1) skip_check("the library checks all blocks again and again");
  if (!check_is_long()) skip_check("it takes a minute");
  sixty_gigabytes_in_pieces(100000, 100000);
  sixty_gigabytes_in_pieces(131072, 131072);
  sixty_gigabytes_in_pieces(1 << 20, 1 << 20);
}

__attribute__((constructor)) static void read_page_size(void) {
  page = (size_t)sysconf(_SC_PAGESIZE);
}
