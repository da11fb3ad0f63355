/* The public headers are plain C and self-contained: this file compiles as strict C99 and includes
   nothing before them. */
#include "tsmalloc/arena.h"
#include "tsmalloc/tsmalloc.h"
/* Order does not matter. */
#include "tsmalloc/classic.h"

int header_is_c(void);

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
