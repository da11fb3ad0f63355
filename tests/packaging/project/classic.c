#include <stdio.h>
#include <tsmalloc/classic.h>

int main(void) {
  const ts_heap_options options = {.strategy = TS_STRATEGY_CACHED, .fit = TS_FIT_BEST};
  ts_heap* const heap = ts_heap_create(&options);
  void* const block = ts_heap_malloc(heap, 33);
  printf("%s\n", ts_heap_usable_size(heap, block) >= 33 ? "ours" : "another's");
  ts_heap_destroy(heap);
  return 0;
}
