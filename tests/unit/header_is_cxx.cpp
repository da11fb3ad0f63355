// The engine's header works in any C++: this file compiles as strict C++98, and includes nothing
// before it.
#include "tsmalloc/arena.h"
#include "tsmalloc/tsmalloc.h"

// What the header answers without a library.
extern "C" int engine_header_is_cxx() {
  return !ts_available() && ts_version() == 0 && ts_usable_size(NULL) == 0 &&
         ts_good_size(100, 0) == 100 && ts_good_size(100, 3) == 0 && ts_trim(0) >= 0 &&
         ts_housekeep() >= -1 && ts_option_set("SHOW", "1") == ENOSYS &&
         ts_option_get("SHOW", NULL, 0) == ENOSYS && ts_on_event(NULL) == ENOSYS &&
         ts_profile_start(0) == ENOSYS && ts_profile_stop() == ENOSYS &&
         ts_profile_write(1, TSMALLOC_PROFILE_NOW) == ENOSYS && ts_arena_create() == NULL &&
         ts_arena_malloc(NULL, 1) == NULL && ts_purge() == 0 && ts_expand(NULL, 1) == 0 &&
         ts_stats_write(1, TSMALLOC_TEXT) != 0 && ts_owns(NULL) == 0 &&
         ts_block_of(NULL, NULL, NULL) == 0 && ts_visit(TSMALLOC_PAGES, NULL, NULL) == -1;
}
