// Runs checks, each in a new process (posix_spawn of this program, so no fork handler of the tested
// allocator takes part), and reports through write(2), since the allocator under test may be
// broken.
#include "check.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

enum { passed = 0, failed = 1, unusable = 2, skipped = 77 };
#ifndef CHECK_TIMEOUT
#define CHECK_TIMEOUT 180
#endif
enum { time_limit_seconds = CHECK_TIMEOUT, long_time_limit_seconds = 1200, most_reports = 10 };

static const char* program_name = "?";
static const char* check_name = "?";
static volatile int failures;

void report_failure(const char* file, int line, const char* expected, const char* format, ...) {
  const int ordinal = __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
  if (ordinal > most_reports) return;
  char detail[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(detail, sizeof detail, format, arguments);
  va_end(arguments);
  const char* base = strrchr(file, '/');
  dprintf(STDOUT_FILENO, "%s: \"%s\" failed (%s:%d)\n  expected: %s\n  got:      %s\n",
          program_name, check_name, base == NULL ? file : base + 1, line, expected, detail);
}

void report_figure(const char* format, ...) {
  char figure[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(figure, sizeof figure, format, arguments);
  va_end(arguments);
  dprintf(STDOUT_FILENO, "%s: \"%s\": %s\n", program_name, check_name, figure);
}

// Passed on to the processes of the checks.
static const char* const long_variable = "CHECKS_ARE_LONG";

bool check_is_long(void) { return getenv(long_variable) != NULL; }

bool check_has_failed(void) { return __atomic_load_n(&failures, __ATOMIC_RELAXED) != 0; }

void end_check(void) { _exit(check_has_failed() ? failed : passed); }

void skip_check(const char* reason) {
  dprintf(STDOUT_FILENO, "%s: \"%s\" skipped: %s\n", program_name, check_name, reason);
  _exit(skipped);
}

void need_glibc(const char* reason) {
#ifdef __GLIBC__
  (void)reason;
#else
  skip_check(reason);
#endif
}

void* find_function(const char* name) { return dlsym(RTLD_DEFAULT, name); }

const char* tested_library(void) {
  static char name[64];
  Dl_info allocator;
  if (dladdr(dlsym(RTLD_DEFAULT, "malloc"), &allocator) == 0) return "";
  const char* base = strrchr(allocator.dli_fname, '/');
  base = base == NULL ? allocator.dli_fname : base + 1;
  const char* const version = strstr(base, ".so.");
  const size_t bytes = version == NULL ? strlen(base) : (size_t)(version - base) + strlen(".so");
  snprintf(name, sizeof name, "%.*s", (int)bytes, base);
  return name;
}

bool library_is_ours(void) { return strncmp(tested_library(), "libtsmalloc", 11) == 0; }
bool library_is_engine(void) { return strcmp(tested_library(), "libtsmalloc.so") == 0; }
bool library_is_hardened(void) { return strcmp(tested_library(), "libtsmalloc-secure.so") == 0; }

bool library_has(const char* function) {
  Dl_info its;
  Dl_info mallocs;
  void* const found = find_function(function);
  return found != NULL && dladdr(found, &its) != 0 &&
         dladdr(find_function("malloc"), &mallocs) != 0 && its.dli_fbase == mallocs.dli_fbase;
}

bool is_expected(const char* variable, const char* function) {
  const char* const expected = getenv(variable);
  return expected != NULL ? strcmp(expected, "1") == 0 : find_function(function) != NULL;
}

pthread_t start_thread(void* (*body)(void*), void* argument) {
  return start_thread_on_stack(0, body, argument);
}

pthread_t start_thread_on_stack(size_t bytes, void* (*body)(void*), void* argument) {
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  REQUIRE(bytes == 0 || pthread_attr_setstacksize(&attributes, bytes) == 0, "a stack of %zu",
          bytes);
  const int error = pthread_create(&thread, &attributes, body, argument);
  REQUIRE(error == 0, "pthread_create: %s", strerror(error));
  return thread;
}

void* run_thread(void* (*body)(void*), void* argument) {
  void* result = NULL;
  pthread_join(start_thread(body, argument), &result);
  return result;
}

void start_threads(pthread_t* threads, size_t count, void* (*body)(void*)) {
  for (size_t i = 0; i < count; ++i) threads[i] = start_thread(body, (void*)(i + 1));
}

void join_threads(const pthread_t* threads, size_t count) {
  for (size_t i = 0; i < count; ++i) pthread_join(threads[i], NULL);
}

int status_of(pid_t child) {
  int status = 0;
  REQUIRE(child >= 0, "no process: %s", strerror(errno));
  while (waitpid(child, &status, 0) < 0) REQUIRE(errno == EINTR, "waitpid: %s", strerror(errno));
  return status;
}

static unsigned char pattern_byte(size_t offset, uint64_t seed) {
  return (unsigned char)((seed * 0x9e3779b97f4a7c15u >> 56) + offset * 7 + (offset >> 8));
}

void fill(void* block, size_t bytes, uint64_t seed) {
  unsigned char* byte = block;
  for (size_t i = 0; i < bytes; ++i) byte[i] = pattern_byte(i, seed);
}

size_t first_damage(const void* block, size_t bytes, uint64_t seed) {
  const unsigned char* byte = block;
  for (size_t i = 0; i < bytes; ++i) {
    if (byte[i] != pattern_byte(i, seed)) return i;
  }
  return bytes;
}

void expect_filled(const char* file, int line, const void* block, size_t bytes, uint64_t seed) {
  const size_t damage = first_damage(block, bytes, seed);
  if (damage == bytes) return;
  report_failure(file, line, "what was written", "byte %zu of %zu at %p (seed %ju) has changed",
                 damage, bytes, block, (uintmax_t)seed);
}

size_t first_nonzero(const void* block, size_t bytes) {
  const unsigned char* byte = block;
  for (size_t i = 0; i < bytes; ++i) {
    if (byte[i] != 0) return i;
  }
  return bytes;
}

static void* block_of(size_t bytes) {
  void* const block = malloc(bytes);
  REQUIRE(block != NULL, "malloc(%zu) is null", bytes);
  return block;
}

void* filled(size_t bytes, uint64_t seed) {
  void* const block = block_of(bytes);
  fill(block, bytes, seed);
  return block;
}

// Of a block with these many bytes, how many are filled when many blocks are.
static size_t filled_part(size_t bytes) { return bytes < 100 ? bytes : 100; }

size_t take_blocks(char** blocks, size_t most, size_t bytes) {
  for (size_t count = 0; count < most; ++count) {
    errno = 0;
    blocks[count] = malloc(bytes);
    if (blocks[count] == NULL) {
      EXPECT(errno == ENOMEM, "malloc(%zu) failed with errno %d", bytes, errno);
      return count;
    }
    fill(blocks[count], filled_part(bytes), count);
  }
  return most;
}

void give_back_blocks(char* const* blocks, size_t count, size_t bytes) {
  for (size_t i = 0; i < count; ++i) {
    EXPECT_FILLED(blocks[i], filled_part(bytes), i);
    free(blocks[i]);
  }
}

void limit_resource(int resource, size_t value) {
  struct rlimit both;
  REQUIRE(getrlimit(resource, &both) == 0, "getrlimit: %s", strerror(errno));
  both.rlim_cur = value;
  REQUIRE(setrlimit(resource, &both) == 0, "setrlimit: %s", strerror(errno));
}

void* written(size_t bytes) { return memset(block_of(bytes), 1, bytes); }

uint64_t next_random(uint64_t* state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

size_t random_size(uint64_t* state, size_t limit) {
  const int magnitudes = 64 - __builtin_clzll(limit);
  const size_t size =
      (size_t)(next_random(state) >> (64 - 1 - next_random(state) % (uint64_t)magnitudes));
  return size > limit ? limit : size;
}

size_t natural_alignment(size_t bytes) {
  size_t alignment = 1;
  while (alignment < 16 && alignment * 2 <= bytes) alignment *= 2;
  return alignment;
}

size_t opaque(size_t value) {
  __asm__ volatile("" : "+r"(value));
  return value;
}

void* opaque_pointer(void* pointer) {
  __asm__ volatile("" : "+r"(pointer)::"memory");
  return pointer;
}

unsigned threads_named(const char* name, long* last) {
  unsigned found = 0;
  DIR* const tasks = opendir("/proc/self/task");
  REQUIRE(tasks != NULL, "there is no /proc/self/task");
  for (const struct dirent* task; (task = readdir(tasks)) != NULL;) {
    char path[300];
    char text[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
    if (!read_text(path, text, sizeof text)) continue;
    text[strcspn(text, "\n")] = '\0';
    if (strcmp(text, name) != 0) continue;
    ++found;
    if (last != NULL) *last = strtol(task->d_name, NULL, 10);
  }
  closedir(tasks);
  return found;
}

size_t mapping_count(void) {
  char text[4096];
  size_t count = 0;
  const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  REQUIRE(file >= 0, "cannot open /proc/self/maps: %s", strerror(errno));
  for (ssize_t got = 0; (got = read(file, text, sizeof text)) > 0;) {
    for (ssize_t i = 0; i < got; ++i) count += text[i] == '\n';
  }
  close(file);
  return count;
}

// Field `index` of /proc/self/statm, in bytes.
static size_t statm_bytes(int index) {
  char text[128];
  REQUIRE(read_text("/proc/self/statm", text, sizeof text), "no statm: %s", strerror(errno));
  char* cursor = text;
  size_t pages = 0;
  for (int i = 0; i <= index; ++i) pages = strtoul(cursor, &cursor, 10);
  return pages * (size_t)sysconf(_SC_PAGESIZE);
}

size_t address_space_bytes(void) { return statm_bytes(0); }
size_t data_bytes(void) { return statm_bytes(5); }
size_t resident_bytes(void) { return statm_bytes(1); }

size_t anonymous_bytes(void) {
  const long kilobytes = figure_of("/proc/self/smaps_rollup", "\nAnonymous:");
  return kilobytes < 0 ? statm_bytes(1) - statm_bytes(2) : (size_t)kilobytes << 10;
}

// The dynamic linker only warns about a library that it cannot preload, and then every check would
// test libc.
static bool preload_took_effect(void) {
  const char* preload = getenv("LD_PRELOAD");
  if (preload == NULL || *preload == '\0') return true;
  Dl_info allocator;
  Dl_info libc;
  if (dladdr(dlsym(RTLD_DEFAULT, "malloc"), &allocator) == 0 ||
      dladdr(dlsym(RTLD_DEFAULT, "getppid"), &libc) == 0) {
    return false;
  }
  if (allocator.dli_fbase != libc.dli_fbase) return true;
  dprintf(STDERR_FILENO,
          "%s: LD_PRELOAD=%s is set, but malloc is still libc's; is the path right, and does the "
          "library export malloc?\n",
          program_name, preload);
  return false;
}

static int run_here(const Check* check) {
  check_name = check->name;
  alarm(check_is_long() ? long_time_limit_seconds : time_limit_seconds);
  check->run();
  return check_has_failed() ? failed : passed;
}

// Runs one check in its own process group, so that nothing it started outlives it.
static int run_apart(char* program, const Check* check) {
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  char* arguments[] = {program, (char*)check->name, NULL};
  char* const emulator = getenv("CHECK_EMULATOR");
  char* emulated[] = {emulator, getenv("CHECK_MACHINE"), program, (char*)check->name, NULL};
  // The kernel cannot run a program for another architecture, but its emulator can
  // (tests/machines/emulate).
  pid_t child = 0;
  const int error = posix_spawn(&child, emulator == NULL ? "/proc/self/exe" : emulator, NULL,
                                &attributes, emulator == NULL ? arguments : emulated, environ);
  posix_spawnattr_destroy(&attributes);
  check_name = check->name;
  if (error != 0) {
    report_failure(__FILE__, __LINE__, "a new process", "%s", strerror(error));
    return failed;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  kill(-child, SIGKILL);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  const int signal_number = WTERMSIG(status);
  report_failure(__FILE__, __LINE__, "a normal exit", "%s%s", strsignal(signal_number),
                 signal_number == SIGALRM ? ": it hung" : "");
  return failed;
}

// A program with a main of its own may have none.
extern const Check __start_checks[] __attribute__((weak, visibility("hidden")));
extern const Check __stop_checks[] __attribute__((weak, visibility("hidden")));

int run_checks(int argc, char** argv) {
  const Check* const checks = __start_checks;
  const size_t count = (size_t)(__stop_checks - __start_checks);
  const char* base = strrchr(argv[0], '/');
  program_name = base == NULL ? argv[0] : base + 1;
  if (!preload_took_effect()) return unusable;
  if (argc > 1 && strcmp(argv[1], "--long") == 0) {
    if (setenv(long_variable, "1", 1) != 0) return unusable;
    argv[1] = argv[0];
    --argc;
    ++argv;
  }
  if (argc > 1) {
    for (size_t i = 0; i < count; ++i) {
      if (strcmp(argv[1], checks[i].name) == 0) return run_here(&checks[i]);
    }
    dprintf(STDERR_FILENO, "%s: no check is named \"%s\"; these are:\n", program_name, argv[1]);
    for (size_t i = 0; i < count; ++i) dprintf(STDERR_FILENO, "  %s\n", checks[i].name);
    return unusable;
  }
  size_t count_passed = 0;
  size_t count_skipped = 0;
  for (size_t i = 0; i < count; ++i) {
    const int outcome = run_apart(argv[0], &checks[i]);
    count_passed += outcome == passed;
    count_skipped += outcome == skipped;
    if (outcome != passed && outcome != skipped && outcome != failed) {
      check_name = checks[i].name;
      report_failure(__FILE__, __LINE__, "exit status 0", "exit status %d", outcome);
    }
  }
  const size_t count_failed = count - count_passed - count_skipped;
  dprintf(STDOUT_FILENO, "%s: %zu passed, %zu failed, %zu skipped\n", program_name, count_passed,
          count_failed, count_skipped);
  return count_failed == 0 ? passed : failed;
}

__attribute__((weak)) int main(int argc, char** argv) { return run_checks(argc, argv); }
