/* A row of blocks for the course's first movie: some are freed one by one, some with neighbours. */
#include <stdlib.h>

enum { count = 16, bytes = 1000 };

int main(void) {
  char* row[count];
  for (int i = 0; i < count; ++i) row[i] = calloc(1, bytes);
  for (int i = 1; i < count; i += 2) free(row[i]);     /* holes between blocks */
  for (int i = 2; i < count / 2; i += 2) free(row[i]); /* and what lies between holes */
  char* large = calloc(1, 5 * bytes);
  char* small = calloc(1, bytes / 2);
  free(row[0]);
  free(large);
  free(small);
  for (int i = count / 2; i < count; i += 2) free(row[i]);
  return 0;
}
