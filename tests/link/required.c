// A program that requires the engine, and tells its linker so: it calls nothing of the malloc
// family, and still gets the library that it is linked with, even an archive's member.
#define TSMALLOC_REQUIRED
#include <stdio.h>
#include <tsmalloc/arena.h>

int main(void) {
  const size_t good = ts_good_size(TSMALLOC_MAX_SMALL_SIZE + 1, 0);
  printf("version %d, %zu bytes instead of %d\n", ts_version(), good, TSMALLOC_MAX_SMALL_SIZE + 1);
  const int is_engine = ts_version() == TSMALLOC_VERSION && ts_available() == 1 &&
                        ts_good_size(TSMALLOC_MAX_SMALL_SIZE, 0) == TSMALLOC_MAX_SMALL_SIZE &&
                        good == (5 << 14) - (64 << 6) && ts_usable_size(NULL) == 0 &&
                        ts_trim(0) == 0 && ts_housekeep() >= -1 && ts_scope_leave() != 0 &&
                        ts_owns(NULL) == 0 && ts_block_of(NULL, NULL, NULL) == 0;
  return is_engine ? 0 : 1;
}
