// Limits on address space and data, whenever they are set, and machines that refuse large
// reservations. A program gets the blocks that fit, ENOMEM for others, and its threads and mappings
// get their memory; when the limit is raised, more memory is available.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

enum { megabyte = 1 << 20, most_blocks = 100000 };

static char* block[most_blocks];

// Blocks of this size, until there are no more or `most_bytes` are taken.
static size_t take(size_t each, size_t most_bytes) {
  const size_t most = (most_bytes + each - 1) / each;
  return take_blocks(block, most < most_blocks ? most : most_blocks, each);
}

CHECK("programs start, also in 40 MB of address space") {
  need_glibc("/bin/sh may be of another C library than this program");
  static const char* const limits[] = {"unlimited", "200000", "100000", "40000"};
  for (size_t i = 0; i < COUNT_OF(limits); ++i) {
    char command[300];
    snprintf(command, sizeof command,
             "ulimit -v %s; test \"$(printf '%%s\\n' c a b | sort | tr -d '\\n')\" = abc",
             limits[i]);
    const int status = system(command);
    EXPECT(status == 0, "sort under ulimit -v %s: wait status %d", limits[i], status);
  }
}

static void* use_and_wait(void* barrier) {
  char* const own = filled(1000, 3);
  pthread_barrier_wait(barrier);
  EXPECT_FILLED(own, 1000, 3);
  free(own);
  return NULL;
}

// This many threads at once, each with a heap if possible.
static void hold_threads(unsigned count, size_t stack_bytes) {
  static pthread_t thread[512];
  REQUIRE(count <= COUNT_OF(thread), "%u", count);
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, count);
  for (unsigned i = 0; i < count; ++i)
    thread[i] = start_thread_on_stack(stack_bytes, use_and_wait, &barrier);
  join_threads(thread, count);
}

static void skip_libcs_arenas(void) {
  if (strncmp(tested_library(), "libc.", 5) == 0) skip_check("each of libc's arenas takes 128 MB");
}

// A limit that a program sets for itself after the allocator has started leaves room for threads
// and others' mappings, and the rest for the allocator.
CHECK("a limit that is set late leaves room for others") {
  skip_libcs_arenas();
  free(opaque_pointer(malloc(1000)));
  limit_resource(RLIMIT_AS, (size_t)300 * megabyte);
  hold_threads(8, 8 * megabyte);
  char* const mapped =
      mmap(NULL, 50 * megabyte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(mapped != MAP_FAILED, "50 MB of 300 cannot be mapped: %s", strerror(errno));
  if (mapped != MAP_FAILED) munmap(mapped, 50 * megabyte);
  const size_t count = take(100000, (size_t)400 * megabyte);
  const size_t got = count * 100000;
  report_figure("%zu MB of 300 can be allocated", got >> 20);
  EXPECT(got >= (size_t)100 * megabyte && got < (size_t)300 * megabyte, "%zu bytes", got);
  give_back_blocks(block, count, 100000);
}

// A block that did not fit is available once the limit is gone.
static void raise_limit(int resource, size_t now) {
  limit_resource(resource, now + 40 * megabyte);
  const size_t few = take(5000, (size_t)200 * megabyte);
  EXPECT(few * 5000 < (size_t)60 * megabyte, "%zu bytes under a limit of 40 MB", few * 5000);
  EXPECT(malloc(opaque((size_t)200 * megabyte)) == NULL, "200 MB under a limit of 40");
  limit_resource(resource, RLIM_INFINITY);
  void* const large = malloc(opaque((size_t)200 * megabyte));
  EXPECT(large != NULL, "200 MB cannot be had although the limit is gone");
  free(large);
  give_back_blocks(block, few, 5000);
  const size_t many = take(5000, (size_t)300 * megabyte);
  EXPECT(many * 5000 >= (size_t)300 * megabyte, "only %zu bytes without a limit", many * 5000);
  give_back_blocks(block, many, 5000);
}

CHECK("when a limit on address space is raised, there is more") {
  raise_limit(RLIMIT_AS, address_space_bytes());
}
CHECK("when a limit on data is raised, there is more") { raise_limit(RLIMIT_DATA, data_bytes()); }

// A request that fails takes nothing from those that can succeed.
static void ask_too_much(int resource, size_t now) {
  free(opaque_pointer(malloc(opaque(1000))));
  limit_resource(resource, now + 1000 * (size_t)megabyte);
  const size_t before = address_space_bytes();
  static const size_t too_much[] = {60000, 30000, 4000, 1500};
  for (size_t i = 0; i < COUNT_OF(too_much); ++i) {
    EXPECT(malloc(opaque(too_much[i] * megabyte)) == NULL, "%zu MB of 1000", too_much[i]);
  }
  const size_t after = address_space_bytes();
  EXPECT(after <= before + 64 * (size_t)megabyte,
         "requests that failed have taken %zu MB of addresses", (after - before) / megabyte);
  void* const large = malloc(opaque(600 * (size_t)megabyte));
  EXPECT(large != NULL, "600 MB of 1000 cannot be had after requests that failed");
  void* const mapped = mmap(NULL, 200 * (size_t)megabyte, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT(mapped != MAP_FAILED, "200 MB more of 1000 cannot be mapped: %s", strerror(errno));
}
CHECK("requests that fail use up no limit on address space") {
  ask_too_much(RLIMIT_AS, address_space_bytes());
}
CHECK("requests that fail use up no limit on data") { ask_too_much(RLIMIT_DATA, data_bytes()); }

CHECK("300 threads in 80 MB") {
  skip_libcs_arenas();
  limit_resource(RLIMIT_AS, address_space_bytes() + 80 * (size_t)megabyte);
  hold_threads(300, 64 << 10);
}

static void* wait_and_use(void* barrier) {
  pthread_barrier_wait(barrier);
  void* const own = malloc(opaque(100));
  EXPECT(own != NULL, "100 bytes cannot be had");
  pthread_barrier_wait(barrier);
  free(own);
  return NULL;
}

// Memory freed by large blocks is available for threads' first small ones.
CHECK("threads begin when all addresses are taken") {
  skip_libcs_arenas();
  enum { threads = 40, each = 50000 };
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, threads + 1);
  pthread_t thread[threads];
  for (unsigned i = 0; i < threads; ++i)
    thread[i] = start_thread_on_stack(64 << 10, wait_and_use, &barrier);
  limit_resource(RLIMIT_AS, address_space_bytes() + 40 * (size_t)megabyte);
  give_back_blocks(block, take(each, (size_t)400 * megabyte), each);
  free(opaque_pointer(malloc(opaque(100))));
  for (unsigned i = 0; i < 2; ++i) pthread_barrier_wait(&barrier);
  join_threads(thread, threads);
}

// Each keeps some blocks of a gigabyte to 64 terabytes, as far as available, and small ones.
static void* ask_for_absurd_sizes(void* seed) {
  enum { kept = 8, rounds = 300 };
  uint64_t random = (uint64_t)(uintptr_t)seed;
  char* large[kept] = {NULL};
  char* small[kept] = {NULL};
  for (size_t i = 0; i < rounds; ++i) {
    const size_t at = i % kept;
    free(large[at]);
    large[at] = malloc(opaque((size_t)1 << (30 + next_random(&random) % 17)));
    if (large[at] != NULL) large[at][0] = 1;
    if (small[at] != NULL) EXPECT_FILLED(small[at], 100, at);
    free(small[at]);
    small[at] = malloc(100);
    EXPECT(small[at] != NULL, "100 bytes cannot be had");
    if (small[at] != NULL) fill(small[at], 100, at);
  }
  for (size_t at = 0; at < kept; ++at) {
    free(large[at]);
    free(small[at]);
  }
  return NULL;
}

CHECK("threads that ask for absurd sizes until addresses run out go on") {
  pthread_t thread[4];
  start_threads(thread, COUNT_OF(thread), ask_for_absurd_sizes);
  join_threads(thread, COUNT_OF(thread));
}

// Anonymous memory of a small shell script, in KiB. (How much of libraries' files is mapped around a
// fault differs from run to run, by more than all of this.) The shell reads its own smaps_rollup,
// because only that walks the page tables; rusage and status report sums of counters that each
// processor batches.
static long anonymous_in_shell(void) {
  FILE* const shell = popen(
      "while read -r name kib unit; do"
      "  if test \"$name\" = Anonymous:; then echo \"$kib\"; fi;"
      "done </proc/self/smaps_rollup",
      "r");
  long kib = 0;
  REQUIRE(shell != NULL && fscanf(shell, "%ld", &kib) == 1, "the shell says nothing");
  REQUIRE(pclose(shell) == 0, "the shell fails");
  return kib;
}

static long least_of_shells(void) {
  long least = anonymous_in_shell();
  for (int i = 0; i < 30; ++i) {
    const long now = anonymous_in_shell();
    least = now < least ? now : least;
  }
  return least;
}

CHECK("a program that hardly allocates has at most 96 KiB more of its own") {
  need_glibc("/bin/sh may be of another C library than this program");
  if (access("/proc/self/smaps_rollup", R_OK) != 0) skip_check("the system has no smaps_rollup");
  const long with_library = least_of_shells();
  unsetenv("LD_PRELOAD");
  const long more = with_library - least_of_shells();
  report_figure("a small shell script has %ld KiB more memory of its own than under libc", more);
  EXPECT(more <= 96 || !library_is_engine(), "%ld KiB more", more);
}

CHECK("a program that hardly allocates has little address space") {
  free(opaque_pointer(malloc(100)));
  report_figure("the process has %zu MB of address space", address_space_bytes() >> 20);
  EXPECT(address_space_bytes() < (size_t)64 * megabyte || !library_is_ours(), "%zu bytes",
         address_space_bytes());
}

// A limit on locked memory counts addresses, and 8 MiB are the usual one.
CHECK("a program that hardly allocates can lock its memory") {
  if (library_is_ours() && !library_is_engine() && !library_is_hardened())
    skip_check("the teaching heaps do not promise it");
  free(opaque_pointer(malloc(1000)));
  limit_resource(RLIMIT_MEMLOCK, 8 * megabyte);
  if (geteuid() == 0 && setuid(65534) != 0) skip_check("root may lock everything");
  REQUIRE(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall with %zu KiB of addresses: %s",
          address_space_bytes() >> 10, strerror(errno));
  char* const large = malloc(opaque(megabyte));
  EXPECT(large != NULL, "a megabyte cannot be had: %s", strerror(errno));
  free(large);
  free(opaque_pointer(malloc(1000)));
}
