// malloc_usable_size as the capacity of a block, in programs like systemd's, built with
// _FORTIFY_SOURCE=3, whose compiler assumes that a block is as long as the request. (This file is
// compiled that way, and without the -fno-builtin of the others, or nothing would be fortified.)
// The reported size can be made official, by realloc or by requesting it to begin with. It stays
// the same.
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { most_bytes = 100000 };

// Like systemd's MALLOC_SIZEOF_SAFE (its pull request 25967): hides from the compiler that the
// block is still as long as it was, and tells it the real length.
__attribute__((noinline, alloc_size(2))) static void* expand_to_usable(void* block, size_t usable) {
  __asm__ volatile("" : "+r"(usable) : : "memory");
  return block;
}

// The compiler knows how long `block` is, and passes that to memset: one more byte ends the
// process.
static void write_behind_the_end(void) {
  const size_t bytes = opaque(1000);
  char* const block = malloc(bytes);
  memset(block, 1, opaque(bytes + 1));
  _exit(opaque_pointer(block) != NULL ? 0 : 1);
}

CHECK("the program is fortified") {
  const pid_t child = fork();
  if (child == 0) {
    close(STDERR_FILENO);
    write_behind_the_end();
  }
  const int status = status_of(child);
  EXPECT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT,
         "a byte behind the end may be written: wait status %d", status);
}

// A buffer that grows like systemd's GREEDY_REALLOC: to twice what is needed, and then to the
// usable size of that.
CHECK("buffers that grow use what they have") {
  char* buffer = NULL;
  size_t capacity = 0;
  size_t reallocations = 0;
  for (size_t length = 1; length < most_bytes; ++length) {
    if (length > capacity) {
      void* const grown = realloc(buffer, 2 * length);
      REQUIRE(grown != NULL, "realloc to %zu is null", 2 * length);
      capacity = malloc_usable_size(grown);
      buffer = expand_to_usable(grown, capacity);
      ++reallocations;
    }
    memset(buffer + length - 1, (int)(length % 251), 1);
  }
  for (size_t i = 1; i < most_bytes; ++i)
    EXPECT((unsigned char)buffer[i - 1] == i % 251, "byte %zu changed", i - 1);
  EXPECT(reallocations <= 20, "%zu reallocations", reallocations);
  free(buffer);
}

CHECK("usable bytes are written, and realloc to as many stays in place") {
  size_t moved = 0;
  for (size_t bytes = 0; bytes <= most_bytes; bytes += bytes < 5000 ? 1 : 61) {
    char* const block = malloc(bytes);
    REQUIRE(block != NULL, "malloc(%zu) is null", bytes);
    fill(block, bytes, bytes);
    const uintptr_t address = (uintptr_t)block;
    const size_t usable = malloc_usable_size(block);
    EXPECT(usable >= bytes, "malloc(%zu): usable size %zu", bytes, usable);
    char* const whole = expand_to_usable(block, usable);
    memset(whole + bytes, 0x5a, usable - bytes);
    EXPECT(malloc_usable_size(whole) == usable, "%zu became %zu", usable,
           malloc_usable_size(whole));
    if (usable == 0) {
      free(block);
      continue;
    }
    char* const official = realloc(block, usable);
    REQUIRE(official != NULL, "realloc to the usable size %zu is null", usable);
    moved += (uintptr_t)official != address;
    EXPECT(malloc_usable_size(official) >= usable, "%zu became %zu", usable,
           malloc_usable_size(official));
    EXPECT_FILLED(official, bytes, bytes);
    memset(official, 1, usable);
    free(official);
  }
  report_figure("%zu blocks moved that were reallocated to their usable size", moved);
  EXPECT(moved == 0 || !library_is_ours(), "%zu blocks moved", moved);
}
