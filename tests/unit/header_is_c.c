/* The public headers are plain C and self-contained: this file compiles as strict C99 and includes
   nothing before them. */
#include "tsmalloc/arena.h"
#include "tsmalloc/tsmalloc.h"
/* Order does not matter. */
#include "tsmalloc/classic.h"

int header_is_c(void);
int engine_header_is_c(void);

int header_is_c(void) {
  ts_heap_options options = {0};
  options.strategy = TS_STRATEGY_ARENAS;
  ts_heap* heap = ts_heap_create(&options);
  void* block = heap != NULL ? ts_heap_malloc(heap, 10) : NULL;
  const int works = block != NULL;
  if (heap != NULL) ts_heap_free(heap, block);
  ts_heap_destroy(heap);
  return works;
}

/* What the header answers without a library. */
int engine_header_is_c(void) {
  return !ts_available() && ts_version() == 0 && ts_usable_size(NULL) == 0 &&
         ts_good_size(100, 0) == 100 && ts_good_size(100, 3) == 0 && ts_trim(0) >= 0 &&
         ts_housekeep() >= -1 && ts_option_set("SHOW", "1") == ENOSYS &&
         ts_option_get("SHOW", NULL, 0) == ENOSYS && ts_on_event(NULL) == ENOSYS &&
         ts_profile_start(0) == ENOSYS && ts_profile_stop() == ENOSYS &&
         ts_profile_write(1, TSMALLOC_PROFILE_NOW) == ENOSYS && ts_arena_create() == NULL &&
         ts_scope_enter(NULL) == ENOTSUP && ts_scope_leave() == ENOTSUP && ts_purge() == 0 &&
         ts_expand(NULL, 1) == 0 && ts_stats_write(1, TSMALLOC_TEXT) != 0 && ts_owns(NULL) == 0 &&
         ts_block_of(NULL, NULL, NULL) == 0 && ts_visit(TSMALLOC_PAGES, NULL, NULL) == -1;
}
