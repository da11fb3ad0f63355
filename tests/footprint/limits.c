// Memory limits (src/features/limits/limits.h): what is purged below the soft limit, that malloc
// fails beyond the hard one, and that neither ends the process. Checks that need a cgroup of their
// own are skipped if they cannot make one.
//
// `limits rounds N MB` runs N rounds in a cgroup of that many MiB under any malloc, and prints how
// many it survived.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/check.h"
#include "footprint/memory.h"
#include "tsmalloc/arena.h"
#include "tsmalloc/tsmalloc.h"

enum { kb = 1 << 10, mb = 1 << 20, million = 1000000 };

// ---- cgroups ----

static char group[512];  // its directory; empty if there is none
static bool is_version_1;

static bool write_to_group(const char* name, size_t value) {
  char path[600];
  char text[32];
  snprintf(path, sizeof path, "%s/%s", group, name);
  const int length = snprintf(text, sizeof text, "%zu", value);
  const int file = open(path, O_WRONLY | O_CLOEXEC);
  const bool written = file >= 0 && write(file, text, (size_t)length) == length;
  if (file >= 0) close(file);
  return written;
}

static bool limit_group(size_t bytes) {
  return write_to_group(is_version_1 ? "memory.limit_in_bytes" : "memory.max", bytes);
}

// Makes a cgroup with this limit in bytes below the process's own; false, with the reason, if that
// fails.
static bool make_group(size_t bytes, const char** reason) {
  char lines[8192];
  *reason = "there is no /proc/self/cgroup";
  if (!read_text("/proc/self/cgroup", lines, sizeof lines)) return false;
  char* path = strstr(lines, ":memory:");
  is_version_1 = path != NULL;
  if (path == NULL) path = strstr(lines, "0::");
  *reason = "this process is in no group";
  if (path == NULL) return false;
  path += is_version_1 ? strlen(":memory:") : strlen("0::");
  path[strcspn(path, "\n")] = 0;
  snprintf(group, sizeof group, "/sys/fs/cgroup%s%s/tsmalloc-limits-%d",
           is_version_1 ? "/memory" : "", strcmp(path, "/") == 0 ? "" : path, getpid());
  *reason = "no control group may be made here";
  if (mkdir(group, 0755) != 0) return false;
  *reason = "the control group has no limit of memory";
  if (limit_group(bytes)) return true;
  rmdir(group);
  return false;
}

static void remove_group(void) {
  for (int tries = 0; tries < 200 && rmdir(group) != 0 && errno == EBUSY; ++tries) idle(5);
}

// Runs it in the cgroup, and returns its process's status.
static int status_in_group(void (*run)(void)) {
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    REQUIRE(write_to_group("cgroup.procs", 0), "the group takes no process");
    run();
    end_check();
  }
  const int status = status_of(child);
  remove_group();
  return status;
}

static void run_in_group(size_t bytes, void (*run)(void)) {
  const char* reason = NULL;
  if (!make_group(bytes, &reason)) skip_check(reason);
  const int status = status_in_group(run);
  EXPECT(status == 0, "the process ended with status %#x%s", status,
         WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? ", killed" : "");
}

// ---- a program nearly as large as its cgroup ----

static void* written_or_null(size_t bytes) {
  void* const block = malloc(bytes);
  if (block != NULL) memset(block, 1, bytes);
  return block;
}

enum { small_blocks = 80 * million / 200, large_blocks = 8 };
static void** smalls;
static void* larges[large_blocks];
static volatile unsigned* survived;  // rounds
static unsigned wanted_rounds;

// 150 MB stay, in blocks of all sizes. In each round, 80 MB of small blocks come and go, except for
// a few that fragment the free memory, and then 80 MB of large ones.
static void do_rounds(void) {
  static const size_t sizes[] = {48, 100, 1000, 20000, 1000000};
  for (size_t i = 0; i < COUNT_OF(sizes); ++i) {
    for (size_t left = 30 * million; left >= sizes[i]; left -= sizes[i])
      REQUIRE(written_or_null(sizes[i]) != NULL, "malloc(%zu) is null", sizes[i]);
  }
  smalls = malloc(small_blocks * sizeof *smalls);
  REQUIRE(smalls != NULL, "malloc is null");
  for (*survived = 0; *survived < wanted_rounds; ++*survived) {
    for (size_t i = 0; i < small_blocks; ++i) {
      smalls[i] = written_or_null(190);
      REQUIRE(smalls[i] != NULL, "malloc is null in round %u", *survived);
    }
    for (size_t i = 0; i < small_blocks; ++i) {
      if (i % 1000 != 0) free(smalls[i]);
    }
    for (size_t i = 0; i < large_blocks; ++i) {
      larges[i] = written_or_null(80 * million / large_blocks);
      REQUIRE(larges[i] != NULL, "malloc is null in round %u", *survived);
    }
    for (size_t i = 0; i < large_blocks; ++i) free(larges[i]);
    for (size_t i = 0; i < small_blocks; i += 1000) free(smalls[i]);
  }
}

static void share_count(unsigned rounds) {
  void* const shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(shared != MAP_FAILED, "mmap");
  survived = shared;
  wanted_rounds = rounds;
}

CHECK("a program survives in a group of its size") {
  share_count(check_is_long() ? 1000 : 20);
  run_in_group(256 * mb, do_rounds);
  EXPECT(*survived == wanted_rounds, "only %u of %u rounds", *survived, wanted_rounds);
}

static int print_rounds(unsigned rounds, size_t bytes) {
  const char* reason = NULL;
  share_count(rounds);
  if (!make_group(bytes, &reason)) {
    fprintf(stderr, "%s\n", reason);
    return 77;
  }
  const int status = status_in_group(do_rounds);
  printf("%u of %u rounds%s\n", *survived, rounds, WIFSIGNALED(status) ? ", then killed" : "");
  return 0;
}

// ---- the hard limit ----

static size_t fill_up(void** blocks, size_t most, size_t bytes) {
  size_t count = 0;
  for (errno = 0; count < most && (blocks[count] = written_or_null(bytes)) != NULL;) ++count;
  return count;
}

// A block that moves its pages, or grows in place, needs only its growth.
CHECK("realloc grows up to the hard limit") {
  REQUIRE(ts_option_set("HARD_LIMIT", "64M") == 0, "the option is refused");
  unsigned char* block = written_or_null(40 * mb);
  REQUIRE(block != NULL, "malloc is null");
  void* const behind = written_or_null(100);
  block = realloc(block, 60 * mb);
  REQUIRE(block != NULL && block[40 * mb - 1] == 1, "realloc to 60 MB of 64");
  EXPECT(realloc(block, opaque(70 * mb)) == NULL && errno == ENOMEM, "realloc to 70 MB of 64");
  free(behind);
  free(block);
}

static void* fill_all(void* total) {
  void* blocks[1000];
  const size_t count = fill_up(blocks, COUNT_OF(blocks), 300 * kb);
  __atomic_fetch_add((size_t*)total, count * 300 * kb, __ATOMIC_RELAXED);
  return NULL;
}

CHECK("threads share the hard limit") {
  size_t total = 0;
  pthread_t thread[4];
  REQUIRE(ts_option_set("HARD_LIMIT", "100M") == 0, "the option is refused");
  for (size_t i = 0; i < COUNT_OF(thread); ++i) thread[i] = start_thread(fill_all, &total);
  join_threads(thread, COUNT_OF(thread));
  EXPECT(total >= 90 * mb && total <= 100 * mb, "%zu MB", total / mb);
}

CHECK("a child keeps the hard limit") {
  REQUIRE(ts_option_set("HARD_LIMIT", "64M") == 0, "the option is refused");
  free(written_or_null(mb));
  const pid_t child = fork();
  if (child == 0) _exit(malloc(opaque(70 * mb)) == NULL && malloc(opaque(30 * mb)) != NULL ? 0 : 1);
  const int status = status_of(child);
  EXPECT(status == 0, "the child has no limit");
}

// ---- events ----

// What the handler allocates belongs to the program, whenever the event comes.
static void* volatile kept_by_handler;
static void keep(int event, size_t bytes) {
  (void)event, (void)bytes;
  if (kept_by_handler == NULL) kept_by_handler = written_or_null(100);
}

CHECK("a handler in a scope allocates outside") {
  REQUIRE(ts_on_event(keep) == 0 && ts_option_set("LIMIT", "32M") == 0, "refused");
  ts_arena* const arena = ts_arena_create();
  REQUIRE(ts_scope_enter(arena) == 0, "no scope");
  for (int i = 0; i < 16; ++i) written_or_null(4 * mb);
  ts_scope_leave();
  REQUIRE(kept_by_handler != NULL, "it was not called");
  ts_arena_destroy(arena);
  EXPECT(ts_owns(kept_by_handler) == 1, "its block went with the arena");
}

// A handler whose own request is also refused.
static volatile size_t calls;
static void ask_for_more(int event, size_t bytes) {
  (void)event, (void)bytes;
  ++calls;
  free(malloc(opaque(40 * mb)));
}

CHECK("a handler is refused and not told") {
  REQUIRE(ts_on_event(ask_for_more) == 0 && ts_option_set("HARD_LIMIT", "64M") == 0, "refused");
  for (size_t size = 16; malloc(opaque(size)) != NULL; size = size % 20000 + 16) continue;
  EXPECT(calls >= 1, "it was not called");
  const size_t before = calls;
  for (size_t size = 16; size < 2000; size += 16) malloc(opaque(size));  // and returns
  EXPECT(calls <= before + 2000 / 16, "%zu calls", calls - before);
}

// The handler's call gives the thread its heap, and the thread keeps it.
static void* first_is_refused(void* heaps) {
  unsigned* const heap = heaps;
  kept_by_handler = NULL;
  EXPECT(malloc(opaque(70 * mb)) == NULL, "malloc gave more");
  void* const block = written_or_null(100);
  ts_extent at_handler = {0};
  ts_extent after = {0};
  REQUIRE(kept_by_handler != NULL && ts_block_of(kept_by_handler, &at_handler, NULL) == 1 &&
              ts_block_of(block, &after, NULL) == 1,
          "a block is none");
  heap[0] = at_handler.heap;
  heap[1] = after.heap;
  return NULL;
}

CHECK("a thread keeps the heap of its handler") {
  REQUIRE(ts_on_event(keep) == 0 && ts_option_set("HARD_LIMIT", "64M") == 0, "refused");
  unsigned heap[2] = {0};
  run_thread(first_is_refused, heap);
  EXPECT(heap[0] == heap[1], "heaps %u and %u", heap[0], heap[1]);
}

CHECK("statistics tell a limit at once") {
  free(written_or_null(mb));
  static const struct {
    const char* value;
    size_t bytes;
  } limits[] = {{"100M", 100 * mb}, {"off", 0}, {"64M", 64 * mb}};
  for (size_t i = 0; i < COUNT_OF(limits); ++i) {
    REQUIRE(ts_option_set("HARD_LIMIT", limits[i].value) == 0, "%s is refused", limits[i].value);
    ts_statistics s;
    ts_stats(&s, sizeof s);
    EXPECT(s.hard_limit_bytes == limits[i].bytes, "%s: %zu", limits[i].value, s.hard_limit_bytes);
  }
}

static volatile bool trims;
static void* trim_until_told(void* unused) {
  while (trims) ts_trim(0);
  return unused;
}

// Memory being purged is in no list meanwhile, but is not in use either.
CHECK("a purge meanwhile refuses nothing") {
  REQUIRE(ts_option_set("HARD_LIMIT", "64M") == 0, "the option is refused");
  trims = true;
  const pthread_t thread = start_thread(trim_until_told, NULL);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    char* const block = written_or_null(40 * mb);
    if (block == NULL) ++refused;
    free(block);
    usleep((useconds_t)(i * 37 % 3000));
  }
  trims = false;
  pthread_join(thread, NULL);
  EXPECT(refused == 0, "%d of 300", refused);
}

CHECK("without /proc nothing changes") {
  if (chroot("/var/empty") != 0 && chroot("/mnt") != 0) skip_check("no other root may be set");
  void* blocks[300];
  EXPECT(fill_up(blocks, COUNT_OF(blocks), mb) == COUNT_OF(blocks), "malloc is null");
}

int main(int argc, char** argv) {
  if (argc == 4 && strcmp(argv[1], "rounds") == 0)
    return print_rounds((unsigned)atoi(argv[2]), (size_t)atoi(argv[3]) * mb);
  return run_checks(argc, argv);
}
