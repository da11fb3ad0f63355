/* tsmalloc/classic.h: the teaching heaps, to use, study and compare.
 *
 * This is the C interface of libtsmalloc-classic: the functions of the source reports, and heaps
 * as objects. The drop-in libraries libtsmalloc-<strategy>-<fit>.so need no header: they replace
 * malloc when preloaded.
 *
 * Sizes are in bytes. Functions that return a pointer return NULL on failure and set errno as
 * stated. All functions may be called from any thread unless stated otherwise; none is
 * async-signal-safe. */
#ifndef TSMALLOC_CLASSIC_H
#define TSMALLOC_CLASSIC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
/* Exported even if the library is compiled with hidden visibility. */
#pragma GCC visibility push(default)

/* ---- The heaps of the source reports ----
 *
 * Two ready-made best-fit heaps that grow with sbrk by exactly the missing bytes and never shrink.
 * sbrk is not thread-safe: if another part of the program moves the break at the same time
 * (glibc's own malloc does when it grows), memory of the two may overlap. Moves between two calls
 * are harmless. */

/* One heap, one mutex held for the whole call. Any size, 0 included, returns a block of its own,
 * aligned to 16. ENOMEM. */
void* ts_malloc_lock(size_t size);
/* Frees a block of ts_malloc_lock; NULL is ignored. Aborts on a block that is not in use. */
void ts_free_lock(void* block);

/* One heap per thread, a lock only around sbrk. A block freed by another thread joins that
 * thread's heap. */
void* ts_malloc_nolock(size_t size);
void ts_free_nolock(void* block);

/* The size of the data segment that the two heaps have obtained, and the bytes in its free blocks,
 * headers included. In a drop-in library: of its own heap, whatever its source. */
size_t ts_data_segment_size(void);
size_t ts_data_segment_free_space_size(void);

/* ---- Heaps as objects ---- */

typedef enum {
  TS_STRATEGY_LOCK,     /* one heap, one mutex */
  TS_STRATEGY_RWLOCK,   /* one heap, searched under a shared lock, changed under an exclusive one */
  TS_STRATEGY_NOLOCK,   /* a heap per thread, a lock only around growth */
  TS_STRATEGY_ARENAS,   /* several heaps, each with a mutex; blocks return to their arena */
  TS_STRATEGY_CACHED,   /* a central heap and a cache per thread */
  TS_STRATEGY_LOCKFREE, /* atomics only */
  TS_STRATEGY_COUNT
} ts_strategy;

typedef enum {
  TS_FIT_FIRST, /* the lowest address that is large enough */
  TS_FIT_BEST,  /* the smallest block that is large enough; among equals the lowest address */
  TS_FIT_WORST, /* the largest; among equals the lowest address */
  TS_FIT_COUNT
} ts_fit;

typedef enum {
  TS_SOURCE_MMAP,   /* mappings */
  TS_SOURCE_SBRK,   /* the data segment; mappings once that cannot grow */
  TS_SOURCE_BUFFER, /* only the caller's buffer */
  TS_SOURCE_COUNT
} ts_source;

typedef struct ts_heap ts_heap;

/* How to create a heap. Zero-initialise it and set what differs: {.strategy = TS_STRATEGY_ARENAS,
 * .fit = TS_FIT_BEST}. */
typedef struct {
  ts_strategy strategy;
  ts_fit fit;
  ts_source source;
  void* buffer;       /* TS_SOURCE_BUFFER: the memory; it must outlive the heap */
  size_t buffer_size; /* TS_SOURCE_BUFFER: its size, at least TS_BUFFER_MIN */
  size_t growth_size; /* the segment grows by at least this much; 0: by exactly the missing bytes */
  /* Free memory at the end of the segment, and free mappings, are returned to the system above
   * this; 0: never. */
  size_t trim_threshold;
  /* TS_STRATEGY_NOLOCK: 0, or a fixed share of memory that each thread gets once and for all. */
  size_t thread_share;
} ts_heap_options;

#define TS_BUFFER_MIN ((size_t)256)

/* Creates a heap. The heap's own description (not its blocks) is in mapped memory, whatever the
 * source. EINVAL: an option is out of range or contradicts another. ENOMEM. */
ts_heap* ts_heap_create(const ts_heap_options* options);

/* Returns all memory of the heap, including its blocks. No thread may be inside the heap or call
 * it again. NULL is ignored. */
void ts_heap_destroy(ts_heap* heap);

/* Allocates at least `size` bytes, aligned to 16. ENOMEM. */
void* ts_heap_malloc(ts_heap* heap, size_t size);
/* The same, aligned to `alignment`, a power of two. EINVAL, ENOMEM. */
void* ts_heap_aligned_alloc(ts_heap* heap, size_t alignment, size_t size);
/* Allocates zeroed memory for `count` elements of `size` bytes. ENOMEM, also if the product
 * overflows. */
void* ts_heap_calloc(ts_heap* heap, size_t count, size_t size);
/* Resizes a block, moving it if necessary. NULL for `block` allocates. ENOMEM: the old block is
 * unchanged. */
void* ts_heap_realloc(ts_heap* heap, void* block, size_t size);
/* Frees a block of this heap; NULL is ignored. Preserves errno. Aborts on a block that is not in
 * use. */
void ts_heap_free(ts_heap* heap, void* block);
/* How many bytes of a block may be used, at least the requested size; 0 for NULL. */
size_t ts_heap_usable_size(const ts_heap* heap, const void* block);

/* What a heap holds. Exact while no other thread is inside, approximate otherwise. */
typedef struct {
  size_t segment_size; /* obtained from the source and not returned */
  size_t free_size;    /* in free blocks, including headers and blocks cached by threads */
  size_t free_blocks;  /* number of free blocks */
  size_t cached_size;  /* part of free_size: cached by threads (TS_STRATEGY_CACHED) */
  size_t growth_calls; /* times the segment grew */
  size_t sbrk_calls;   /* part of growth_calls: attempts with sbrk */
  size_t chunks;       /* contiguous pieces of the segment */
  size_t subheaps;     /* arenas or thread heaps */
} ts_heap_measures;

void ts_heap_measure(ts_heap* heap, ts_heap_measures* measures);

typedef enum { TS_BLOCK_USED, TS_BLOCK_FREE, TS_BLOCK_CACHED } ts_block_state;

typedef struct {
  const void* address; /* of the usable bytes */
  size_t size;         /* usable bytes */
  ts_block_state state;
  unsigned subheap; /* the arena or thread heap that owns the block; 0 if there is only one */
} ts_block;

/* Calls `visit` for every block, chunk by chunk and in address order within a chunk, until it
 * returns nonzero; returns that value, else 0. No other thread may be inside the heap, and `visit`
 * must not call it. */
int ts_heap_walk(ts_heap* heap, int (*visit)(const ts_block* block, void* argument),
                 void* argument);

/* Returns free memory to the system: the end of the segment except `keep` bytes, and whole pages
 * inside free blocks. 1 if anything was returned, else 0. */
int ts_heap_trim(ts_heap* heap, size_t keep);

/* Returns 1 if all structures of the heap are consistent, else 0. No other thread may be inside.
 * For tests and debugging. */
int ts_heap_check(ts_heap* heap);

/* "lock", "best", ... or NULL if out of range. */
const char* ts_strategy_name(ts_strategy strategy);
const char* ts_fit_name(ts_fit fit);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
