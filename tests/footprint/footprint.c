// How much memory stays resident: after a burst, with many waiting threads, with blocks freed by
// another thread than allocated them, and after threads have come and gone. Bounds are multiples of
// what the program itself has in use. As it concerns the same transfers between threads: if two
// threads free one block, one of them is reported.
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/check.h"
#include "footprint/memory.h"

CHECK("after a burst of 500 MB less than a tenth stays resident") {
  static const size_t sizes[] = {64, 1000, 20000, 1000000};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    const pid_t child = fork();
    if (child == 0) {
      burst(sizes[i], (size_t)500 << 20);
      _exit(memory("VmRSS:") < memory("VmHWM:") / 10 ? 0 : 1);
    }
    const int status = status_of(child);
    EXPECT(status == 0, "blocks of %zu bytes: more than a tenth of the peak is resident", sizes[i]);
  }
}

// Where threads wait for one another at the end of their work.
static pthread_barrier_t all_done;

static void run_threads(unsigned count, void* (*run)(void*), void* argument) {
  static pthread_t ids[500];
  REQUIRE(count <= COUNT_OF(ids), "%u threads", count);
  pthread_barrier_init(&all_done, NULL, count);
  for (unsigned i = 0; i < count; ++i) ids[i] = start_thread_on_stack(64 << 10, run, argument);
  join_threads(ids, count);
}

typedef struct Turns {
  pthread_mutex_t mutex;
  size_t each;
} Turns;

static void* take_turn(void* argument) {
  Turns* turns = argument;
  pthread_mutex_lock(&turns->mutex);
  burst(turns->each, (size_t)30 << 20);
  pthread_mutex_unlock(&turns->mutex);
  pthread_barrier_wait(&all_done);
  return NULL;
}

enum { waiting_threads = 256 };

static size_t peak_of_turns(size_t each, unsigned threads) {
  Turns turns = {.mutex = PTHREAD_MUTEX_INITIALIZER, .each = each};
  run_threads(threads, take_turn, &turns);
  return memory("VmHWM:");
}

CHECK("256 waiting threads hold half as much again as one") {
  static const size_t sizes[] = {100, 900, 5000, 20000, 100000};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    // Each in a process of its own, where memory has no history.
    int results[2];
    REQUIRE(pipe(results) == 0, "pipe failed");
    for (int round = 0; round < 2; ++round) {
      const pid_t child = fork();
      if (child == 0) {
        const size_t peak = peak_of_turns(sizes[i], round == 0 ? 1 : waiting_threads);
        _exit(write(results[1], &peak, sizeof peak) == sizeof peak ? 0 : 1);
      }
      const int status = status_of(child);
      REQUIRE(status == 0, "a child ended with status %d", status);
    }
    size_t peaks[2];
    REQUIRE(read(results[0], peaks, sizeof peaks) == sizeof peaks, "the pipe is short");
    EXPECT(peaks[1] <= peaks[0] + peaks[0] / 2,
           "blocks of %zu bytes: %d threads that touch 30 MB in turn hold %zu bytes, one %zu",
           sizes[i], waiting_threads, peaks[1], peaks[0]);
  }
}

enum { stream_blocks = 40000, stream_rounds = 100 };

typedef struct Stream {
  char* blocks[2][stream_blocks];  // one half is filled while the other is freed
  pthread_barrier_t turn;
} Stream;

static void* consume(void* argument) {
  Stream* stream = argument;
  for (int round = 0; round < stream_rounds; ++round) {
    pthread_barrier_wait(&stream->turn);
    for (size_t i = 0; i < stream_blocks; ++i) free(stream->blocks[round % 2][i]);
  }
  return NULL;
}

CHECK("a stream between threads holds what is live") {
  static Stream stream;
  pthread_barrier_init(&stream.turn, NULL, 2);
  const pthread_t consumer = start_thread(consume, &stream);
  size_t live = 0;
  for (int round = 0; round < stream_rounds; ++round) {
    size_t bytes = 0;
    for (size_t i = 0; i < stream_blocks; ++i) {
      const size_t size = 16 + (i * 2654435761U >> 8) % 1000;
      stream.blocks[round % 2][i] = malloc(size);
      memset(stream.blocks[round % 2][i], 1, size);
      bytes += size;
    }
    live = 2 * bytes;  // this half, and the one that is being freed
    pthread_barrier_wait(&stream.turn);
  }
  pthread_join(consumer, NULL);
  EXPECT(memory("VmHWM:") <= live + live * 3 / 10, "%zu bytes live at most, and a peak of %zu",
         live, memory("VmHWM:"));
}

enum { short_lived_blocks = 5000 };

// The two threads of a pair hold their blocks at the same time, so every pair needs the same
// amount.
static void* live_shortly(void* pair) {
  char* blocks[short_lived_blocks];
  for (size_t i = 0; i < short_lived_blocks; ++i) blocks[i] = written(200);
  pthread_barrier_wait(pair);
  for (size_t i = 0; i < short_lived_blocks; ++i) free(blocks[i]);
  return NULL;
}

static void ended_threads_leave_nothing(void) {
  size_t early = 0;
  pthread_barrier_t pair;
  pthread_barrier_init(&pair, NULL, 2);
  for (int i = 0; i < 3000; ++i) {
    pthread_t ids[2];
    for (int j = 0; j < 2; ++j) ids[j] = start_thread(live_shortly, &pair);
    join_threads(ids, 2);
    if (i == 100) early = memory("VmHWM:");
  }
  EXPECT(memory("VmHWM:") <= early + ((size_t)1 << 20),
         "200 threads held %zu bytes at most, 6,000 threads %zu", early, memory("VmHWM:"));
}

CHECK("threads that end leave nothing behind") { ended_threads_leave_nothing(); }

// On glibc, when no key is left that would tell an allocator about thread exits.
CHECK("nor where the program has all keys") {
  free(malloc(100));
  pthread_key_t key;
  while (pthread_key_create(&key, NULL) == 0) continue;
  ended_threads_leave_nothing();
}

static void* use_all_sizes(void* unused) {
  static const size_t total = 100000;
  for (size_t each = 16; each <= 32768; each += each < 1024 ? 16 : each / 8) {
    void* blocks[500];
    size_t count = 0;
    for (; count < COUNT_OF(blocks) && count * each < total; ++count) blocks[count] = written(each);
    while (count != 0) free(blocks[--count]);
  }
  pthread_barrier_wait(&all_done);
  return unused;
}

CHECK("many threads that end at a time keep little") {
  enum { threads = 300 };
  run_threads(threads, use_all_sizes, NULL);
  const size_t left = memory("VmRSS:");
  report_figure("after %d threads that used all sizes %zu KB are left of %zu", threads, left >> 10,
                memory("VmHWM:") >> 10);
  EXPECT(left <= (size_t)64 << 20, "%d ended threads keep %zu bytes", threads, left);
}

static void* use_a_block_of_each_size(void* unused) {
  for (size_t each = 16; each <= 1024; each += 16) written(each);
  pthread_barrier_wait(&all_done);
  return unused;
}

// A page of memory for each size class.
CHECK("many threads with few blocks hold pages") {
  enum { threads = 500 };
  run_threads(threads, use_a_block_of_each_size, NULL);
  const size_t peak = memory("VmHWM:");
  report_figure("%d threads with 64 blocks of different sizes each hold %zu KB", threads,
                peak >> 10);
  EXPECT(peak <= (size_t)threads * (200 << 10), "%d threads hold %zu bytes", threads, peak);
}

// Purged memory that is soon needed again stays for a while, but not forever.
CHECK("memory that was needed again is given back in the end") {
  for (int i = 0; i < 3; ++i) burst((size_t)64 << 20, (size_t)64 << 20);
  for (int tenths = 0; tenths < 115; ++tenths) {
    usleep(100000);
    for (int i = 0; i < 10; ++i) burst(100000, 5000000);
  }
  const size_t left = memory("VmRSS:");
  report_figure("12 s after blocks of 64 MB %zu KB are left", left >> 10);
  EXPECT(left <= (size_t)24 << 20, "12 s after blocks of 64 MB %zu bytes are left", left);
}

static void* shared_block;
static pthread_barrier_t both;

static void* free_it(void* unused) {
  free(malloc(100));  // each thread has a heap of its own by then
  pthread_barrier_wait(&both);
  free(shared_block);
  pthread_barrier_wait(&both);
  return unused;
}

CHECK("of two threads that free a large block one is told") {
  static const size_t sizes[] = {80 << 10, 128 << 10, 256 << 10};
  for (size_t i = 0; i < 3 * 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      fclose(stderr);
      close(STDERR_FILENO);
      shared_block = malloc(sizes[i % COUNT_OF(sizes)]);
      pthread_barrier_init(&both, NULL, 2);
      pthread_t other;
      pthread_create(&other, NULL, free_it, NULL);
      free_it(NULL);
      _exit(0);
    }
    const int status = status_of(child);
    EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
           "two threads freed a block of %zu bytes, and the process ended with status %d",
           sizes[i % COUNT_OF(sizes)], status);
  }
}

// This process's resident bytes in huge pages, or SIZE_MAX where the system does not count them.
static size_t huge_page_bytes(void) {
  const long kilobytes = figure_of("/proc/self/smaps_rollup", "AnonHugePages:");
  return kilobytes < 0 ? SIZE_MAX : (size_t)kilobytes << 10;
}

static bool system_has_huge_pages(void) {
  char line[256] = "";
  FILE* file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  const bool is_read = file != NULL && fgets(line, sizeof line, file) != NULL;
  if (file != NULL) fclose(file);
  return is_read && strstr(line, "[never]") == NULL;
}

enum { large_blocks = 16, large_bytes = 10 << 20 };

// Allocates large blocks one after another, and fills part of each before the next.
static void take_large_blocks(int count, size_t filled) {
  for (int i = 0; i < count; ++i) {
    char* block = malloc(large_bytes);
    REQUIRE(block != NULL, "malloc is null");
    memset(block, 1, filled);
    block[large_bytes - 1] = 1;
  }
}

CHECK("large blocks that are hardly touched hold little") {
  take_large_blocks(large_blocks, 64 << 10);
  EXPECT(memory("VmRSS:") < ((size_t)8 << 20), "%d blocks of 10 MB, each with 68 KB, hold %zu KB",
         large_blocks, memory("VmRSS:") >> 10);
}

// Blocks of 5 to 25 MB in turn, each touched in 64 KB and at its end: what is resident once they
// have been everywhere in the memory that they use.
static void sparse_blocks_begin_where_others_did(void) {
  enum { live = 8, times = 4000 };
  char* blocks[live] = {NULL};
  unsigned random = 1;
  for (int i = 0; i < times; ++i) {
    random = random * 1103515245 + 12345;
    const size_t bytes = 5000000 + (random >> 8) % 20000000;
    char** const block = &blocks[random >> 28 & (live - 1)];
    free(*block);
    *block = malloc(bytes);
    REQUIRE(*block != NULL, "malloc is null");
    memset(*block, 1, 64 << 10);
    (*block)[bytes - 1] = 1;
  }
  const size_t resident = memory("VmRSS:");
  report_figure("%d of %d blocks of 5 to 25 MB in turn, each with 68 KB, hold %zu KB", (int)live,
                (int)times, resident >> 10);
  EXPECT(resident <= ((size_t)24 << 20), "%d blocks in turn, each with 68 KB, hold %zu KB",
         (int)live, resident >> 10);
}

// The same with as much address space as the C library's malloc needs, and half as much again.
CHECK("large blocks in turn, hardly touched, need few addresses") {
  limit_resource(RLIMIT_AS, (size_t)320 << 20);
  sparse_blocks_begin_where_others_did();
}

static atomic_bool forks_are_done;

static void* free_large_blocks(void* unused) {
  while (!atomic_load(&forks_are_done)) free(malloc(5 << 20));
  return unused;
}

// A free reads a system file, which the child must not have.
CHECK("a fork inherits no file that free has open") {
  enum { forks = 300 };
  if (fcntl(3, F_GETFD) != -1) skip_check("the program began with a descriptor 3");
  const pthread_t thread = start_thread(free_large_blocks, NULL);
  int inherited = 0;
  for (int i = 0; i < forks; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(fcntl(3, F_GETFD) == -1 ? 0 : 1);
    const int status = status_of(child);
    inherited += status != 0 ? 1 : 0;
  }
  atomic_store(&forks_are_done, true);
  pthread_join(thread, NULL);
  EXPECT(inherited == 0, "%d of %d children have a file that they did not open", inherited,
         (int)forks);
}

// The same, filled: few pages are purged in between.
CHECK("large blocks in turn, filled, fault in once") {
  enum { times = 100, bytes = 12 << 20 };
  char* block = NULL;
  for (int i = 0; i < times; ++i) {
    free(block);
    block = written(bytes);
  }
  struct rusage usage;
  REQUIRE(getrusage(RUSAGE_SELF, &usage) == 0, "getrusage fails");
  report_figure("a filled block of 12 MB, replaced %d times: %ld page faults", (int)times,
                usage.ru_minflt);
  EXPECT(usage.ru_minflt <= 4 * (bytes >> 12),
         "%ld page faults: more than four times as many as "
         "the block has pages",
         usage.ru_minflt);
}

// After filled blocks, new ones get huge pages until a probe, one block in eight, is not filled.
// Until then, each holds at most two huge pages, at its ends.
CHECK("large blocks that are no longer filled soon hold little") {
  take_large_blocks(large_blocks + 1, large_bytes);  // the next probe is seven blocks away
  const size_t filled = memory("VmRSS:");
  take_large_blocks(4 * large_blocks, 64 << 10);
  const size_t more = memory("VmRSS:") - filled;
  report_figure("%d blocks of 10 MB of which 68 KB are touched hold %zu KB", 4 * large_blocks,
                more >> 10);
  EXPECT(more <= ((size_t)48 << 20), "%zu bytes", more);
}

// A byte in each huge page of this many blocks; `most` is the allowed growth in memory.
static void expect_growth_of_sparse_blocks(int count, size_t bytes, size_t most) {
  const size_t before = memory("VmRSS:");
  for (int i = 0; i < count; ++i) {
    char* block = malloc(bytes);
    REQUIRE(block != NULL, "malloc is null");
    for (size_t at = 0; at < bytes; at += 2 << 20) block[at] = 1;
  }
  const size_t more = memory("VmRSS:") - before;
  report_figure("%d blocks of %zu MB, a page of each 2 MB touched, hold %zu KB", count, bytes >> 20,
                more >> 10);
  EXPECT(more <= most, "%zu bytes, of %zu at most", more, most);
}

// Pages that were only read are resident, but hold nothing.
CHECK("large blocks that are only read do not count as filled") {
  const char* block = calloc(1, large_bytes);
  REQUIRE(block != NULL, "calloc is null");
  for (size_t at = 0; at < large_bytes; at += 4096)
    REQUIRE(block[at] == 0, "calloc is not zero at %zu", at);
  expect_growth_of_sparse_blocks(large_blocks, large_bytes, (size_t)4 << 20);
}

CHECK("large blocks that are filled get huge pages") {
  if (!system_has_huge_pages()) skip_check("the system gives no huge pages");
  take_large_blocks(large_blocks, large_bytes);
  const size_t bytes = huge_page_bytes();
  if (bytes == SIZE_MAX) skip_check("nobody counts huge pages");
  EXPECT(bytes != 0, "%d blocks of 10 MB were filled, and none has a huge page", large_blocks);
}

// Each ends at another place within a huge page, no part of which may stay when it is returned.
CHECK("large blocks that are given back leave nothing behind") {
  static const size_t longest = (size_t)96 << 20;
  static const size_t shortest = (size_t)6 << 20;
  for (size_t bytes = longest; bytes >= shortest; bytes -= (size_t)33 << 16) {
    shared_block = written(bytes);
    REQUIRE(memory("VmRSS:") >= bytes, "a block of %zu bytes was filled, and is not there", bytes);
    free(shared_block);
    malloc_trim(0);
  }
  const size_t left = memory("VmRSS:");
  report_figure("of blocks of 96 to 6 MB that were given back %zu KB are left", left >> 10);
  EXPECT(left <= ((size_t)12 << 20), "%zu bytes are left", left);
}
