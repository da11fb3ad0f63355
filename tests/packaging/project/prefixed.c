#include <stdio.h>
#include <stdlib.h>
#include <tsmalloc/prefixed.h>

int main(void) {
  void* const ours = ts_malloc(33);
  void* const libcs = malloc(33);
  printf("version %d, %s\n", ts_version(),
         ts_usable_size(ours) == ts_good_size(33, 0) ? "ours" : "another's");
  ts_free_sized(ours, 33);
  free(libcs);
  return 0;
}
