/* Prints which malloc is in use: its file, and whether a block belongs to the engine. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tsmalloc/tsmalloc.h>

int main(void) {
  Dl_info where;
  void* (*volatile allocate)(size_t) = malloc;
  void* const block = allocate(33);
  const char* file = "itself";
  if (block == NULL) return 1;
#ifndef LINKED_STATICALLY
  if (dladdr((void*)allocate, &where) == 0) return 1;
  file = where.dli_fname;
#else
  (void)where;
#endif
  printf("version %d, header %d, malloc of %s, %s\n", ts_version(), TSMALLOC_VERSION, file,
         ts_usable_size(block) == ts_good_size(33, 0) ? "ours" : "another's");
  free(block);
  return 0;
}
