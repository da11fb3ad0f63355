/* Whose malloc do this program and libc use? */
#ifndef PREFIXED
#define TSMALLOC_REQUIRED
#include <tsmalloc/tsmalloc.h>
#else
#include <tsmalloc/prefixed.h>
#endif

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check(int holds, const char* what) {
  if (!holds) fprintf(stderr, "not so: %s\n", what);
  return holds;
}

int main(void) {
  int holds = check(ts_version() == TSMALLOC_VERSION, "the library is of the header's version");
#ifdef PREFIXED
  void* const block = ts_malloc(33);
  void* const other = malloc(33);
  holds &= check(ts_usable_size(block) >= 33, "ts_malloc is the engine's");
  holds &= check(malloc_usable_size(other) == 40, "malloc is glibc's");
  free(other);
  ts_free_sized(block, 33);
#else
  char* const text = strdup("a text of libc's own, 33 bytes...");
  holds &= check(ts_usable_size(text) > strlen(text), "libc's blocks are known");
  holds &= check((size_t(*)(const void*))malloc_usable_size == ts_usable_size, "one malloc");
  free(text);
#endif
  return holds ? 0 : 1;
}
