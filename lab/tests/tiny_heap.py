"""A minimal allocator: it frees nothing, and reports no block sizes."""

TINY_HEAP = """
#include <stddef.h>
#include <string.h>
#include <errno.h>
static char memory[1 << 24];
static size_t used;
void *malloc(size_t n) {
  void *p = memory + used;
  used += (n + 31) / 16 * 16;
  return p;
}
void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
void *realloc(void *p, size_t n) { void *q = malloc(n); return p ? memcpy(q, p, n) : q; }
void *aligned_alloc(size_t a, size_t n) { used = (used + a - 1) / a * a; return malloc(n); }
void *memalign(size_t a, size_t n) { return aligned_alloc(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { *p = aligned_alloc(a, n); return 0; }
void free(void *p) { (void)p; }
"""
