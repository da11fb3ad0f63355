// The first moments of a process: every function is called from .preinit_array, before any
// constructor of any library has run (those with -z initfirst excepted), and programs start in
// little address space.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

// Deprecated in favour of mallinfo2, but programs still call it.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

enum { early_blocks = 10 };

static struct {
  bool ran;
  void* block[early_blocks];
  int posix_memalign_result;
  size_t usable;
  size_t arena_bytes;
} early;

static void call_everything(void) {
  free(opaque_pointer(NULL));
  early.block[0] = malloc(100);
  early.block[1] = calloc(10, 10);
  early.block[2] = realloc(malloc(50), 100);
  early.posix_memalign_result = posix_memalign(&early.block[3], 64, 100);
  early.block[4] = memalign(64, 100);
  early.block[5] = aligned_alloc(64, 128);
  early.block[6] = valloc(100);
  early.block[7] = pvalloc(100);
  early.block[8] = strdup(
      "made before the first constructor, by a function of libc: a string that is long enough for "
      "the "
      "hundred bytes of the others");
  early.block[9] = malloc(1 << 20);
  early.usable = malloc_usable_size(early.block[0]);
  early.arena_bytes = mallinfo2().arena + (size_t)mallinfo().arena;
  mallopt(M_MMAP_THRESHOLD, 128 * 1024);
  malloc_trim(0);
  void (*const free_sized)(void*, size_t) = (void (*)(void*, size_t))find_function("free_sized");
  if (free_sized != NULL) free_sized(malloc(10), 10);
  void (*const free_aligned_sized)(void*, size_t, size_t) =
      (void (*)(void*, size_t, size_t))find_function("free_aligned_sized");
  if (free_aligned_sized != NULL) free_aligned_sized(aligned_alloc(32, 32), 32, 32);
  void* large = malloc(32 << 20);
  free(opaque_pointer(large));
  early.ran = true;
}
__attribute__((section(".preinit_array"),
               used)) static void (*const before_constructors)(void) = call_everything;

static void early_calls_work(void) {
  need_glibc("the C library runs no .preinit_array");
  REQUIRE(early.ran, ".preinit_array did not run");
  EXPECT(early.posix_memalign_result == 0, "posix_memalign returned %d",
         early.posix_memalign_result);
  EXPECT(early.usable >= 100, "malloc_usable_size is %zu", early.usable);
  for (size_t i = 0; i < early_blocks; ++i) {
    REQUIRE(early.block[i] != NULL, "early block %zu is null", i);
    EXPECT(malloc_usable_size(early.block[i]) >= 100, "early block %zu has %zu usable bytes", i,
           malloc_usable_size(early.block[i]));
    fill(early.block[i], 100, i);
  }
  for (size_t i = 0; i < early_blocks; ++i) {
    EXPECT(first_damage(early.block[i], 100, i) == 100, "early block %zu was overwritten", i);
    free(early.block[i]);
  }
}

// Runs a program with the tested allocator, and expects it to succeed and to print `output`.
static void expect_program(char* const arguments[], const char* output,
                           size_t address_space_limit) {
  int ends[2];
  REQUIRE(pipe(ends) == 0, "pipe: %s", strerror(errno));
  const pid_t child = fork();
  REQUIRE(child >= 0, "fork: %s", strerror(errno));
  if (child == 0) {
    const struct rlimit limit = {address_space_limit, address_space_limit};
    if (address_space_limit != 0 && setrlimit(RLIMIT_AS, &limit) != 0) _exit(126);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv(arguments[0], arguments);
    _exit(127);
  }
  close(ends[1]);
  char text[256];
  size_t length = 0;
  for (ssize_t got = 1; got > 0 && length < sizeof text - 1; length += (size_t)got) {
    got = read(ends[0], text + length, sizeof text - 1 - length);
    if (got < 0) got = 0;
  }
  text[length] = '\0';
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s ended with wait status %d",
         arguments[0], status);
  EXPECT(strcmp(text, output) == 0, "%s printed \"%s\"", arguments[0], text);
}

static void hello_world(void) {
  need_glibc("/bin/sh may be of another C library than this program");
  char* const shell[] = {(char*)"/bin/sh", (char*)"-c", (char*)"echo hello world", NULL};
  expect_program(shell, "hello world\n", 0);
  char* const pipeline[] = {(char*)"/bin/sh", (char*)"-c",
                            (char*)"printf '%s\\n' c a b | sort | tr -d '\\n'", NULL};
  expect_program(pipeline, "abc", 0);
}

static void little_address_space(void) {
  need_glibc("/bin/sh may be of another C library than this program");
  char* const shell[] = {(char*)"/bin/sh", (char*)"-c", (char*)"echo hello world", NULL};
  expect_program(shell, "hello world\n", (size_t)200000 * 1024);  // ulimit -v 200000
  expect_program(shell, "hello world\n", (size_t)50000 * 1024);
}

static const Check checks[] = {
    {"every function works before the first constructor", early_calls_work},
    {"programs start", hello_world},
    {"programs start in 200 MB and in 50 MB of address space", little_address_space},
};
CHECK_MAIN(checks)
