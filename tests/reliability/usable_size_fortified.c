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

CHECK("usable bytes are written") {
  for (size_t bytes = 0; bytes <= most_bytes; bytes += bytes < 5000 ? 1 : 61) {
    char* block = malloc(bytes);
    REQUIRE(block != NULL, "malloc(%zu) is null", bytes);
    const size_t usable = malloc_usable_size(block);
    EXPECT(usable >= bytes, "malloc(%zu): usable size %zu", bytes, usable);
    block = expand_to_usable(block, usable);
    memset(block, 0x5a, usable);
    EXPECT(malloc_usable_size(block) == usable, "%zu became %zu", usable,
           malloc_usable_size(block));
    free(block);
  }
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

CHECK("realloc to the usable size stays in place") {
  size_t moved = 0;
  for (size_t bytes = 0; bytes <= most_bytes; bytes += bytes < 5000 ? 1 : 61) {
    char* const block = malloc(bytes);
    REQUIRE(block != NULL, "malloc(%zu) is null", bytes);
    fill(block, bytes, bytes);
    const uintptr_t address = (uintptr_t)block;
    const size_t usable = malloc_usable_size(block);
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
  EXPECT(moved == 0 || strncmp(tested_library(), "libtsmalloc", 11) != 0, "%zu blocks moved",
         moved);
}

CHECK("a good size is the usable size of its block") {
  size_t (*const good_size)(size_t) = (size_t(*)(size_t))find_function("malloc_good_size");
  size_t (*const nallocx)(size_t, int) = (size_t(*)(size_t, int))find_function("nallocx");
  if (good_size == NULL && nallocx == NULL) skip_check("neither malloc_good_size nor nallocx");
  for (size_t bytes = 0; bytes <= most_bytes; bytes += bytes < 5000 ? 1 : 61) {
    // (nallocx of 0 bytes is undefined.)
    const size_t asked = bytes == 0 ? 1 : bytes;
    const size_t good = good_size != NULL ? good_size(asked) : nallocx(asked, 0);
    EXPECT(good >= asked, "the good size of %zu is %zu", asked, good);
    if (good_size != NULL && nallocx != NULL)
      EXPECT(nallocx(asked, 0) == good, "nallocx says %zu, malloc_good_size %zu", nallocx(asked, 0),
             good);
    char* const block = malloc(good);
    REQUIRE(block != NULL, "malloc(%zu) is null", good);
    memset(block, 1, good);
    EXPECT(malloc_usable_size(block) == good, "%zu usable bytes of the good size %zu",
           malloc_usable_size(block), good);
    free(block);
    char* const plain = malloc(asked);
    EXPECT(malloc_usable_size(plain) >= good, "malloc(%zu) has %zu usable bytes, not %zu", asked,
           malloc_usable_size(plain), good);
    free(plain);
  }
}
