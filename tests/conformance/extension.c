// tsmalloc/tsmalloc.h: the functions if a tsmalloc library is in the process, and the header's own
// answers if none is. extension_cxx.cpp compiles the same checks as C++.
//
// LIBRARY_EXPECTED tells which of the two it must be: 1 or 0. If it is unset, the dynamic linker
// decides.
#include <tsmalloc/tsmalloc.h>
// First, to show that the header needs no other.
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static bool has_library(void) { return is_expected("LIBRARY_EXPECTED", "ts_version"); }

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
  EXPECT(answers->available == (has_library() ? 1 : 0), "%s: ts_available() is %d", when,
         answers->available);
  EXPECT(answers->version == (has_library() ? TSMALLOC_VERSION : 0), "%s: ts_version() is %d", when,
         answers->version);
  EXPECT(answers->usable == answers->usable_of_malloc, "%s: %zu usable bytes, not %zu", when,
         answers->usable, answers->usable_of_malloc);
  EXPECT(answers->usable_of_null == 0, "%s: null has %zu", when, answers->usable_of_null);
  // (A malloc other than ours may not know sizes so early: tcmalloc's returns 0.)
  EXPECT(answers->good >= 1000 && (answers->good <= answers->usable || !has_library()),
         "%s: ts_good_size(1000, 0) is %zu, usable are %zu", when, answers->good, answers->usable);
  EXPECT(answers->good_aligned >= 1000, "%s: ts_good_size(1000, 4096) is %zu", when,
         answers->good_aligned);
  EXPECT(answers->good_absurd == 0, "%s: ts_good_size(SIZE_MAX, 0) is %zu", when,
         answers->good_absurd);
  EXPECT(answers->trimmed == 0 || answers->trimmed == 1, "%s: ts_trim(0) is %d", when,
         answers->trimmed);
  EXPECT(answers->due_in >= -1 && answers->due_in <= (has_library() ? 200 : -1),
         "%s: ts_housekeep() is %d", when, answers->due_in);
  EXPECT(answers->set == (has_library() ? 0 : ENOSYS), "%s: ts_option_set is %d", when,
         answers->set);
  EXPECT(answers->got == (has_library() ? 0 : ENOSYS), "%s: ts_option_get is %d", when,
         answers->got);
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
  if (!has_library() || malloc_good_size == NULL || nallocx == NULL) return;
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

static void ignore_event(int event, size_t bytes) {
  (void)event;
  (void)bytes;
}

CHECK("events have a handler where there are limits") {
  const bool has_limits = library_is_engine();
  const int expected = !has_library() ? ENOSYS : has_limits ? 0 : ENOTSUP;
  const int set = ts_on_event(ignore_event);
  EXPECT(set == expected || (set == 0 && !library_is_ours()), "%d", set);  // linked in: any of ours
  EXPECT(ts_on_event(NULL) == set, "%d", set);
}

CHECK("profiles are written where there are any") {
  const bool has_profile = library_is_engine();
  const int expected = !has_library() ? ENOSYS : has_profile ? 0 : ENOTSUP;
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

// An option's value; empty if unavailable.
static const char* option(const char* name) {
  static char value[32];
  if (ts_option_get(name, value, sizeof value) != 0) value[0] = 0;
  return value;
}

CHECK("options change, and keep what is refused") {
  char value[32] = "unchanged";
  if (!has_library()) {
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
