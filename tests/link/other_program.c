// A program with libc's malloc, to compare with.
#include <stdlib.h>

int main(int count, char** arguments) {
  (void)arguments;
  free(malloc((size_t)count));
  return 0;
}
