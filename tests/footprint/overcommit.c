// Under strict overcommit the kernel counts all writable private memory, so freed and purged memory
// must not stay counted. (TSMALLOC_STRICT_OVERCOMMIT=1 simulates vm.overcommit_memory=2.)
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/check.h"

enum { mib = 1 << 20, large_blocks = 64, small_blocks = 64 * 1024, small_bytes = 1000 };

// Bytes of writable private mappings.
static size_t counted_bytes(void) {
  FILE* maps = fopen("/proc/self/maps", "r");
  REQUIRE(maps != NULL, "no maps");
  size_t sum = 0;
  char line[512];
  while (fgets(line, sizeof line, maps) != NULL) {
    unsigned long begin = 0;
    unsigned long end = 0;
    char rights[5] = "";
    if (sscanf(line, "%lx-%lx %4s", &begin, &end, rights) == 3 && rights[1] == 'w' &&
        rights[3] == 'p')
      sum += end - begin;
  }
  fclose(maps);
  return sum;
}

static void* large[large_blocks];
static void* small[small_blocks];

static void use_memory(unsigned char content) {
  for (int i = 0; i < large_blocks; ++i) {
    large[i] = calloc(1, mib + mib / 2);
    REQUIRE(large[i] != NULL && *(unsigned char*)large[i] == 0, "block %d", i);
    memset(large[i], content, mib + mib / 2);
  }
  for (int i = 0; i < small_blocks; ++i) {
    small[i] = malloc(small_bytes);
    REQUIRE(small[i] != NULL, "block %d", i);
    memset(small[i], content, small_bytes);
  }
  // In place, and by moving.
  for (int i = 0; i < 8; ++i) {
    large[i] = realloc(large[i], 4 * mib);
    REQUIRE(large[i] != NULL && ((unsigned char*)large[i])[mib] == content, "block %d", i);
    memset(large[i], content, 4 * mib);
  }
}

static void free_all(void) {
  for (int i = 0; i < large_blocks; ++i) free(large[i]);
  for (int i = 0; i < small_blocks; ++i) free(small[i]);
  malloc_trim(0);
}

CHECK("purged memory gives up its charge under strict overcommit") {
  const size_t before = counted_bytes();
  for (int round = 1; round <= 3; ++round) {
    use_memory((unsigned char)round);
    const size_t peak = (counted_bytes() - before) / mib;
    free_all();
    const size_t left = (counted_bytes() - before) / mib;
    report_figure("%zu MB counted, %zu after all was freed", peak, left);
    EXPECT(peak >= 150, "%zu MB", peak);
    EXPECT(left <= 10, "%zu MB", left);
  }
}
