// The malloc family over libtsmalloc-prefixed.a. Linked into a program, it lets tests of any malloc
// test that engine; as a loaded library, it gives the program another malloc alongside.
#include <errno.h>
#include <stdlib.h>
#include <tsmalloc/prefixed.h>

void* malloc(size_t size) { return ts_malloc(size); }
void* calloc(size_t count, size_t size) { return ts_calloc(count, size); }
void* realloc(void* block, size_t size) { return ts_realloc(block, size); }
void free(void* block) { ts_free(block); }
size_t malloc_usable_size(void* block) { return ts_usable_size(block); }
void* aligned_alloc(size_t alignment, size_t size) { return ts_aligned_alloc(alignment, size); }
void* memalign(size_t alignment, size_t size) {
  size_t power = TSMALLOC_MIN_ALIGNMENT;
  while (power < alignment && power <= (size_t)-1 / 4) power *= 2;
  return ts_aligned_alloc(power, size);
}
void* valloc(size_t size) { return ts_aligned_alloc(4096, size); }
void* pvalloc(size_t size) { return ts_aligned_alloc(4096, (size + 4095) & ~(size_t)4095); }
int posix_memalign(void** result, size_t alignment, size_t size) {
  const int kept = errno;
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0)
    return EINVAL;
  void* const block = ts_aligned_alloc(alignment, size);
  errno = kept;
  if (block == NULL) return ENOMEM;
  *result = block;
  return 0;
}
