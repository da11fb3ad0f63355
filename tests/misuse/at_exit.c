// Programs whose misuse no call of malloc detects, one per case: `at_exit CASE`. Each frees a block
// in a destructor, which is no leak.
#include <stdio.h>

#include "classes.h"

enum { small = 100, large = 300000 };

static char* kept;
__attribute__((destructor)) static void free_kept(void) { put(kept); }

int main(int argc, char** argv) {
  const char* const name = argc > 1 ? argv[1] : "nothing";
  kept = get(small);
  char* const a = get(small);
  char* const b = get(large);
  if (strcmp(name, "write after free") == 0) {
    put(a);
    *(char*)opaque(a + 50) = 1;
  } else if (strcmp(name, "overflow") == 0) {
    *(char*)opaque(a + small) = 1;
  } else if (strcmp(name, "overflow of 300 kB") == 0) {
    *(char*)opaque(b + large) = 1;
  } else if (strcmp(name, "three blocks") == 0) {
    get(10);
  } else if (strcmp(name, "none") == 0) {
    put(a);
    put(b);
  } else {
    fprintf(stderr, "at_exit: no case is named \"%s\"\n", name);
    return 2;
  }
  return 0;
}
