// TSMALLOC_THP: which mappings ask for huge pages, and which refuse them (smaps(5)).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance/check.h"
#include "footprint/memory.h"
#include "tsmalloc/tsmalloc.h"

enum { mb = 1 << 20, large_bytes = 40 * mb };

// Whether the mapping of an address has the two-letter flag, and whether the file lists flags.
static bool has_flag(const void* p, const char* flag) {
  char line[4096];
  char wanted[8];
  bool is_wanted = false;
  bool has = false;
  bool is_told = false;
  snprintf(wanted, sizeof wanted, " %s ", flag);
  FILE* const file = fopen("/proc/self/smaps", "r");
  REQUIRE(file != NULL, "there is no /proc/self/smaps");
  while (fgets(line, sizeof line, file) != NULL) {
    unsigned long begin = 0;
    unsigned long end = 0;
    if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
      is_wanted = begin <= (unsigned long)p && (unsigned long)p < end;
    if (!is_wanted || strncmp(line, "VmFlags:", 8) != 0) continue;
    is_told = true;
    line[strcspn(line, "\n")] = ' ';
    has = strstr(line, wanted) != NULL;
  }
  fclose(file);
  if (!is_told) skip_check("the system tells no flags of mappings");
  return has;
}

static unsigned parts_with(const char* block, size_t bytes, const char* flag) {
  return (has_flag(block, flag) ? 1U : 0U) + (has_flag(block + bytes / 2, flag) ? 1U : 0U) +
         (has_flag(block + bytes - 1, flag) ? 1U : 0U);
}

CHECK("never refuses huge pages in the engine's memory alone") {
  REQUIRE(ts_option_set("THP", "never") == 0, "the option is refused");
  for (int i = 0; i < 3; ++i) {
    const char* const block = written(large_bytes);
    EXPECT(parts_with(block, large_bytes, "nh") == 3, "a large block may have huge pages");
    EXPECT(parts_with(block, large_bytes, "hg") == 0, "a large block asks for them");
  }
  for (size_t left = 60 * mb; left != 0; left -= 64) memset(malloc(64), 1, 64);
  EXPECT(has_flag(malloc(opaque(64)), "nh"), "a small block may have them");
  const int on_stack = 0;
  EXPECT(!has_flag(&on_stack, "nh"), "other memory may have none");
}

CHECK("always asks for them in the engine's memory alone") {
  REQUIRE(ts_option_set("THP", "always") == 0, "the option is refused");
  free(malloc(opaque(4 * mb)));  // committed before
  for (int i = 0; i < 3; ++i) {
    const char* const block = written(large_bytes);
    if (!has_flag(block + large_bytes / 2, "hg")) skip_check("the system has no huge pages");
    EXPECT(parts_with(block, large_bytes, "hg") == 3, "a large block asks for none in a part");
  }
  const int on_stack = 0;
  EXPECT(!has_flag(&on_stack, "hg"), "other memory asks for them");
}
