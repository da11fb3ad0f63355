// tsmalloc/tsmalloc.h: the functions if a tsmalloc library is in the process, and the header's own
// answers if none is. extension_cxx.cpp compiles the same checks as C++.
//
// LIBRARY_EXPECTED tells which of the two it must be: 1 or 0. If it is unset, the dynamic linker
// decides.
#include <tsmalloc/tsmalloc.h>
// First, to show that the header needs no other.
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static bool is_expected(void) {
  const char* const expected = getenv("LIBRARY_EXPECTED");
  return expected != NULL ? strcmp(expected, "1") == 0 : find_function("ts_version") != NULL;
}

// The results of all functions, first called before main, in a signal handler or in a destructor,
// and then again.
typedef struct Answers {
  int available;
  int version;
  size_t usable;
  size_t usable_of_malloc;
  size_t usable_of_null;
  size_t good;
  size_t good_aligned;
  size_t good_absurd;
  int trimmed;
  int due_in;
  int set;
  int got;
} Answers;

static Answers ask_all(void) {
  Answers answers;
  void* const block = malloc(opaque(1000));
  answers.available = ts_available();
  answers.version = ts_version();
  answers.usable = ts_usable_size(block);
  answers.usable_of_malloc = malloc_usable_size(block);
  answers.usable_of_null = ts_usable_size(opaque_pointer(NULL));
  answers.good = ts_good_size(opaque(1000), 0);
  answers.good_aligned = ts_good_size(opaque(1000), 4096);
  answers.good_absurd = ts_good_size(opaque(SIZE_MAX), 0);
  free(block);
  answers.trimmed = ts_trim(0);
  answers.due_in = ts_housekeep();
  answers.set = ts_option_set("AT_EXIT", "check");
  char value[32];
  answers.got = ts_option_get("AT_EXIT", value, sizeof value);
  return answers;
}

static void expect_right(const Answers* answers, const char* when) {
  EXPECT(answers->available == (is_expected() ? 1 : 0), "%s: ts_available() is %d", when,
         answers->available);
  EXPECT(answers->version == (is_expected() ? TSMALLOC_VERSION : 0), "%s: ts_version() is %d", when,
         answers->version);
  EXPECT(answers->usable == answers->usable_of_malloc, "%s: %zu usable bytes, not %zu", when,
         answers->usable, answers->usable_of_malloc);
  EXPECT(answers->usable_of_null == 0, "%s: null has %zu", when, answers->usable_of_null);
  // (A malloc other than ours may not know sizes so early: tcmalloc's returns 0.)
  EXPECT(answers->good >= 1000 && (answers->good <= answers->usable || !is_expected()),
         "%s: ts_good_size(1000, 0) is %zu, usable are %zu", when, answers->good, answers->usable);
  EXPECT(answers->good_aligned >= 1000, "%s: ts_good_size(1000, 4096) is %zu", when,
         answers->good_aligned);
  EXPECT(answers->good_absurd == 0, "%s: ts_good_size(SIZE_MAX, 0) is %zu", when,
         answers->good_absurd);
  EXPECT(answers->trimmed == 0 || answers->trimmed == 1, "%s: ts_trim(0) is %d", when,
         answers->trimmed);
  EXPECT(answers->due_in >= -1 && answers->due_in <= (is_expected() ? 200 : -1),
         "%s: ts_housekeep() is %d", when, answers->due_in);
  EXPECT(answers->set == (is_expected() ? 0 : ENOSYS), "%s: ts_option_set is %d", when,
         answers->set);
  EXPECT(answers->got == (is_expected() ? 0 : ENOSYS), "%s: ts_option_get is %d", when,
         answers->got);
}

CHECK("the library is found where there is one") {
  EXPECT(ts_available() == (is_expected() ? 1 : 0), "%d", ts_available());
  EXPECT(ts_version() == (is_expected() ? TSMALLOC_VERSION : 0), "%d", ts_version());
}

CHECK("the header has the project's version") {
  static const int project[] = {PROJECT_VERSION};
  EXPECT(TSMALLOC_VERSION_MAJOR == project[0] && TSMALLOC_VERSION_MINOR == project[1] &&
             TSMALLOC_VERSION_PATCH == project[2],
         "the header's is %d.%d.%d, CMakeLists.txt's %d.%d.%d", TSMALLOC_VERSION_MAJOR,
         TSMALLOC_VERSION_MINOR, TSMALLOC_VERSION_PATCH, project[0], project[1], project[2]);
  EXPECT(TSMALLOC_VERSION == project[0] * 10000 + project[1] * 100 + project[2], "%d",
         TSMALLOC_VERSION);
}

CHECK("ts_usable_size is the block's") {
  uint64_t random = 1;
  for (int i = 0; i < 1000; ++i) {
    const size_t bytes = random_size(&random, 200000);
    void* const block = malloc(bytes);
    REQUIRE(block != NULL, "malloc(%zu) is null", bytes);
    const size_t usable = ts_usable_size(block);
    EXPECT(usable >= bytes, "%zu usable bytes of %zu", usable, bytes);
    EXPECT(usable == malloc_usable_size(block), "%zu; malloc_usable_size says %zu", usable,
           malloc_usable_size(block));
    EXPECT((uintptr_t)block % TSMALLOC_MIN_ALIGNMENT == 0 || !is_expected(), "%p", block);
    fill(opaque_pointer(block), usable, bytes);
    EXPECT_FILLED(block, usable, bytes);
    free(block);
  }
  EXPECT(ts_usable_size(opaque_pointer(NULL)) == 0, "%zu", ts_usable_size(opaque_pointer(NULL)));
}

static void expect_good(size_t size, size_t alignment) {
  const size_t good = ts_good_size(size, alignment);
  EXPECT(good >= size, "ts_good_size(%zu, %zu) is %zu", size, alignment, good);
  EXPECT(ts_good_size(good, alignment) == good, "ts_good_size(%zu, %zu) is %zu, and of that %zu",
         size, alignment, good, ts_good_size(good, alignment));
  // The block for `size` has that many bytes, so asking for them costs no more.
  void* block = malloc(size);
  if (alignment > sizeof(void*)) {
    free(block);
    REQUIRE(posix_memalign(&block, alignment, size) == 0, "null");
  }
  REQUIRE(block != NULL, "null");
  EXPECT(ts_usable_size(block) >= good, "%zu bytes aligned to %zu: %zu are usable, %zu were good",
         size, alignment, ts_usable_size(block), good);
  free(block);
}

CHECK("ts_good_size is what a block has") {
  uint64_t random = 2;
  expect_good(0, 0);
  for (size_t size = 1; size < 5000; size += 1 + size / 64) expect_good(size, 0);
  for (int i = 0; i < 2000; ++i) {
    const size_t alignment = i % 20 == 0 ? 0 : (size_t)1 << i % 20;
    expect_good(random_size(&random, 300000), alignment);
  }
  size_t (*const malloc_good_size)(size_t) = (size_t(*)(size_t))find_function("malloc_good_size");
  size_t (*const nallocx)(size_t, int) = (size_t(*)(size_t, int))find_function("nallocx");
  if (!is_expected() || malloc_good_size == NULL || nallocx == NULL) return;
  for (size_t size = 1; size < 1000000; size += 1 + size / 3) {
    EXPECT(malloc_good_size(size) == ts_good_size(size, 0), "malloc_good_size(%zu) is %zu", size,
           malloc_good_size(size));
    EXPECT(nallocx(size, 7) == ts_good_size(size, 128), "nallocx(%zu, 7) is %zu", size,
           nallocx(size, 7));
  }
}

CHECK("absurd sizes and alignments have no good size") {
  static const size_t bad_alignments[] = {3, 6, 24, 4095, SIZE_MAX, (SIZE_MAX >> 1) + 1};
  for (size_t i = 0; i < COUNT_OF(bad_alignments); ++i) {
    errno = 0;
    EXPECT(ts_good_size(100, bad_alignments[i]) == 0, "alignment %zu: %zu", bad_alignments[i],
           ts_good_size(100, bad_alignments[i]));
    EXPECT(errno == 0, "errno is %d", errno);
  }
  static const size_t bad_sizes[] = {SIZE_MAX, SIZE_MAX - 1, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX,
                                     PTRDIFF_MAX - TSMALLOC_MIN_ALIGNMENT + 1};
  for (size_t i = 0; i < COUNT_OF(bad_sizes); ++i) {
    EXPECT(ts_good_size(bad_sizes[i], 0) == 0, "size %zu: %zu", bad_sizes[i],
           ts_good_size(bad_sizes[i], 0));
    EXPECT(ts_good_size(bad_sizes[i], 1 << 20) == 0, "size %zu: %zu", bad_sizes[i],
           ts_good_size(bad_sizes[i], 1 << 20));
  }
  // Up to the last: either null or a block of its own.
  for (size_t less = 1; less < SIZE_MAX >> 2; less = less * 2 + 1) {
    const size_t size = PTRDIFF_MAX - less;
    const size_t good = ts_good_size(size, 0);
    EXPECT(good == 0 || (good >= size && good <= PTRDIFF_MAX && ts_good_size(good, 0) == good),
           "ts_good_size(%zu, 0) is %zu", size, good);
  }
}

CHECK("ts_trim gives back, and leaves blocks alone") {
  enum { blocks = 16384, bytes = 1000 };
  static void* block[blocks];
  for (size_t i = 0; i < blocks; ++i) block[i] = filled(bytes, i);
  const size_t with_blocks = resident_bytes();
  for (size_t i = 0; i < blocks; ++i) {
    if (i % 1024 != 0) free(block[i]);
  }
  static const size_t keeps[] = {SIZE_MAX, PTRDIFF_MAX, 1 << 20, 1, 0};
  for (size_t i = 0; i < COUNT_OF(keeps); ++i) {
    const int result = ts_trim(keeps[i]);
    EXPECT(result == 0 || result == 1, "ts_trim(%zu) is %d", keeps[i], result);
  }
  if (is_expected()) {
    EXPECT(resident_bytes() < with_blocks - (size_t)blocks * bytes / 2,
           "resident: %zu bytes with the blocks, %zu afterwards", with_blocks, resident_bytes());
  }
  for (size_t i = 0; i < blocks; i += 1024) {
    EXPECT_FILLED(block[i], bytes, i);
    free(block[i]);
  }
  if (!is_expected()) return;
  ts_trim(0);
  EXPECT(ts_trim(0) == 0, "ts_trim(0) gives back when nothing is left");
}

static void* ask_and_trim(void* argument) {
  const uint64_t first = (uintptr_t)argument;
  uint64_t random = first;
  void* block[64] = {NULL};
  for (int i = 0; i < 3000; ++i) {
    void** const one = &block[next_random(&random) % COUNT_OF(block)];
    if (*one != NULL) {
      size_t bytes = 0;
      memcpy(&bytes, *one, sizeof bytes);
      EXPECT(ts_usable_size(*one) >= ts_good_size(bytes, 0), "%zu of %zu", ts_usable_size(*one),
             bytes);
      free(*one);
    }
    const size_t bytes = sizeof bytes + random_size(&random, 50000);
    *one = malloc(bytes);
    REQUIRE(*one != NULL, "null");
    memcpy(*one, &bytes, sizeof bytes);
    if (i % 100 == 0) ts_trim((size_t)i);
    if (i % 10 == 0) ts_housekeep();
  }
  for (size_t i = 0; i < COUNT_OF(block); ++i) free(block[i]);
  return NULL;
}

CHECK("threads ask and trim") {
  pthread_t thread[4];
  start_threads(thread, COUNT_OF(thread), ask_and_trim);
  join_threads(thread, COUNT_OF(thread));
}

static void ignore_event(int event, size_t bytes) {
  (void)event;
  (void)bytes;
}

CHECK("events have a handler where there are limits") {
  const bool has_limits = library_is_engine();
  const int expected = !is_expected() ? ENOSYS : has_limits ? 0 : ENOTSUP;
  const int set = ts_on_event(ignore_event);
  EXPECT(set == expected || (set == 0 && !library_is_ours()), "%d", set);  // linked in: any of ours
  EXPECT(ts_on_event(NULL) == set, "%d", set);
}

CHECK("profiles are written where there are any") {
  const bool has_profile = library_is_engine();
  const int expected = !is_expected() ? ENOSYS : has_profile ? 0 : ENOTSUP;
  const int started = ts_profile_start(1);
  EXPECT(started == expected || (started == 0 && !library_is_ours()), "%d", started);
  FILE* const file = tmpfile();
  if (started == 0) {
    EXPECT(ts_profile_start((size_t)1 << 41) == EINVAL, "an interval of terabytes");
    EXPECT(ts_profile_write(fileno(file), 7) == EINVAL, "an unknown kind");
    EXPECT(ts_profile_write(-1, TSMALLOC_PROFILE_NOW) == EBADF, "no file");
  }
  void* const block = malloc(opaque(100));  // a sample, almost certainly
  EXPECT(ts_profile_write(fileno(file), TSMALLOC_PROFILE_NOW) == started, "it is not written");
  EXPECT(ts_profile_write(fileno(file), TSMALLOC_PROFILE_PEAK) == started, "the peak is not");
  EXPECT((lseek(fileno(file), 0, SEEK_CUR) > 300) == (started == 0), "how long it is");
  EXPECT(ts_profile_stop() == started, "%d", ts_profile_stop());
  free(block);
  fclose(file);
}

CHECK("addresses of the functions work") {
  int (*volatile available)(void) = ts_available;
  int (*volatile version)(void) = ts_version;
  size_t (*volatile usable)(const void*) = ts_usable_size;
  size_t (*volatile good)(size_t, size_t) = ts_good_size;
  int (*volatile trim)(size_t) = ts_trim;
  int (*volatile housekeep)(void) = ts_housekeep;
  int (*volatile set)(const char*, const char*) = ts_option_set;
  int (*volatile get)(const char*, char*, size_t) = ts_option_get;
  void* const block = malloc(opaque(100));
  EXPECT(available() == ts_available(), "%d", available());
  EXPECT(version() == ts_version(), "%d", version());
  EXPECT(usable(block) == ts_usable_size(block), "%zu", usable(block));
  EXPECT(good(100, 64) == ts_good_size(100, 64), "%zu", good(100, 64));
  free(block);
  const int trimmed = trim(0);
  EXPECT(trimmed == 0 || trimmed == 1, "%d", trimmed);
  EXPECT(housekeep() >= -1 && housekeep() <= 200, "%d", housekeep());
  int (*volatile on_event)(void (*)(int, size_t)) = ts_on_event;
  EXPECT(on_event(NULL) == ts_on_event(NULL), "%d", on_event(NULL));
  const int missing = is_expected() ? ENOENT : ENOSYS;
  EXPECT(set("", "") == missing && get("", NULL, 0) == missing, "%d, %d", set("", ""),
         get("", NULL, 0));
}

// An option's value; empty if unavailable.
static const char* option(const char* name) {
  static char value[32];
  if (ts_option_get(name, value, sizeof value) != 0) value[0] = 0;
  return value;
}

CHECK("options change, and keep what is refused") {
  char value[32] = "unchanged";
  if (!is_expected()) {
    EXPECT(ts_option_set("BACKGROUND", "off") == ENOSYS, "an option of no library was set");
    EXPECT(ts_option_get("BACKGROUND", value, sizeof value) == ENOSYS, "it has a value");
    return;
  }
  char kept[32];
  strcpy(kept, option("GUARD_SAMPLE"));
  EXPECT(ts_option_set("GUARD_SAMPLE", "4711") == 0, "without the prefix");
  EXPECT(strcmp(option("TSMALLOC_GUARD_SAMPLE"), "4711") == 0, "%s", option("GUARD_SAMPLE"));
  EXPECT(ts_option_set("TSMALLOC_GUARD_SAMPLE", "0") == 0, "with the prefix");
  EXPECT(strcmp(option("GUARD_SAMPLE"), "0") == 0, "%s", option("GUARD_SAMPLE"));
  static const char* const bad_values[] = {"",  "-1", "1x", "1000000001", "99999999999999999999",
                                           " 1"};
  for (size_t i = 0; i < COUNT_OF(bad_values); ++i) {
    EXPECT(ts_option_set("GUARD_SAMPLE", bad_values[i]) == EINVAL, "'%s' is taken", bad_values[i]);
    EXPECT(strcmp(option("GUARD_SAMPLE"), "0") == 0, "'%s' changed it", bad_values[i]);
  }
  EXPECT(ts_option_set("GUARD_SAMPLE", (const char*)opaque_pointer(NULL)) == EINVAL,
         "null is a value");
  EXPECT(ts_option_set("GUARD_SAMPLE", kept) == 0, "'%s' is refused", kept);
  static const char* const bad_names[] = {
      "",        "TSMALLOC_", "GUARD", "guard_sample", "GUARD_SAMPLE=", "TSMALLOC_TSMALLOC_SHOW",
      "COUNTERS"};
  for (size_t i = 0; i < COUNT_OF(bad_names); ++i) {
    EXPECT(ts_option_set(bad_names[i], "1") == ENOENT, "'%s' is an option", bad_names[i]);
    EXPECT(ts_option_get(bad_names[i], value, sizeof value) == ENOENT, "'%s' has a value",
           bad_names[i]);
  }
  EXPECT(ts_option_set((const char*)opaque_pointer(NULL), "1") == ENOENT, "null is an option");
  EXPECT(ts_option_set("SHOW", "1") == EPERM, "the start is over");
  strcpy(kept, option("ON_MISUSE"));
  EXPECT(ts_option_set("ON_MISUSE", "continue") == 0, "a word");
  EXPECT(ts_option_get("ON_MISUSE", value, strlen("continue")) == ERANGE, "without its end");
  EXPECT(strcmp(value, "unchanged") == 0, "a part of it was written: %s", value);
  EXPECT(ts_option_get("ON_MISUSE", value, strlen("continue") + 1) == 0, "it fits");
  EXPECT(strcmp(value, "continue") == 0, "%s", value);
  EXPECT(ts_option_get("ON_MISUSE", (char*)opaque_pointer(NULL), 0) == ERANGE, "no place at all");
  EXPECT(ts_option_set("ON_MISUSE", kept) == 0, "'%s' is refused", kept);
}

// Each reads a value that some thread has set, while all of them allocate.
static void* change_options(void* argument) {
  static const char* const values[] = {"0", "1", "3", "1000"};
  uint64_t random = (uintptr_t)argument;
  for (int i = 0; i < 3000; ++i) {
    const char* const value = values[next_random(&random) % COUNT_OF(values)];
    EXPECT(ts_option_set("GUARD_SAMPLE", value) == 0, "%s", value);
    void* const block = malloc(random_size(&random, 2000));
    char now[32] = "";
    EXPECT(ts_option_get("GUARD_SAMPLE", now, sizeof now) == 0, "no value");
    bool is_known = false;
    for (size_t v = 0; v < COUNT_OF(values); ++v) is_known |= strcmp(now, values[v]) == 0;
    EXPECT(is_known, "'%s' was never set", now);
    free(block);
  }
  return NULL;
}

CHECK("threads change options") {
  if (!is_expected()) return;
  char kept[32];
  strcpy(kept, option("GUARD_SAMPLE"));
  ts_option_set("GUARD_SAMPLE", "0");
  pthread_t thread[4];
  start_threads(thread, COUNT_OF(thread), change_options);
  join_threads(thread, COUNT_OF(thread));
  ts_option_set("GUARD_SAMPLE", kept);
}

static Answers early;
static void ask_early(void) { early = ask_all(); }
__attribute__((section(".preinit_array"),
               used)) static void (*const before_constructors)(void) = ask_early;

CHECK("all answer before the first constructor") {
  need_glibc("the C library runs no .preinit_array");
  expect_right(&early, "before constructors");
}

// The first destructor to be registered runs last.
static bool asks_late;
__attribute__((destructor(101))) static void ask_late(void) {
  if (!asks_late) return;
  const Answers answers = ask_all();
  expect_right(&answers, "in a destructor");
  end_check();
}

CHECK("all answer in the last destructor") {
  asks_late = true;
  exit(3);  // which the destructor replaces
}

static volatile int version_in_handler;
static volatile size_t good_in_handler;
static void handle(int number) {
  (void)number;
  version_in_handler = ts_available() != 0 ? ts_version() : 0;
  good_in_handler = ts_good_size(1000, 0);
}

CHECK("what is safe in signal handlers answers there") {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  REQUIRE(sigaction(SIGUSR1, &action, NULL) == 0, "sigaction");
  raise(SIGUSR1);
  EXPECT(version_in_handler == ts_version(), "%d", version_in_handler);
  EXPECT(good_in_handler == ts_good_size(1000, 0), "%zu", good_in_handler);
}
