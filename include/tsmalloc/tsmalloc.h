/* tsmalloc/tsmalloc.h: what tsmalloc offers beyond the malloc family.
 *
 * All drop-in libraries have these functions: libtsmalloc.so, libtsmalloc-secure.so, the teaching
 * heaps, libtsmalloc.a and tsmalloc.o. A program that includes this header also runs without any
 * of them: each call goes to the library that is preloaded or linked, or else does what its
 * comment says under "Without tsmalloc". ts_available tells which.
 *
 * This has two limits. If clang compiled the program without -fPIE and -fPIC, the library is
 * looked for at link time, so under LD_PRELOAD the calls behave as without tsmalloc. And these
 * functions alone do not make a linker pull in a library; only malloc and the like do. Neither
 * applies if the program defines TSMALLOC_REQUIRED before it includes this header: the functions
 * are then ordinary ones, and linking fails without the library.
 *
 * Sizes are in bytes. All functions may be called from any thread, from before the first
 * constructor until after the last destructor. None of them reports errors in errno. */
#ifndef TSMALLOC_TSMALLOC_H
#define TSMALLOC_TSMALLOC_H

#include <errno.h>
#include <stddef.h>

/* The version of this header as a number: version 1.2.3 is 10203. */
#define TSMALLOC_VERSION_MAJOR 0
#define TSMALLOC_VERSION_MINOR 1
#define TSMALLOC_VERSION_PATCH 0
#define TSMALLOC_VERSION \
  (TSMALLOC_VERSION_MAJOR * 10000 + TSMALLOC_VERSION_MINOR * 100 + TSMALLOC_VERSION_PATCH)

/* The minimum alignment of every block of malloc, whatever its size. */
#define TSMALLOC_MIN_ALIGNMENT 16

/* The engine's largest small block. A larger block takes whole pages of 16 KiB, which any request
 * can reuse once it is freed, and starts 1 to 64 cache lines into the first page. A property of
 * this version of the engine. */
#define TSMALLOC_MAX_SMALL_SIZE 65536

#ifdef __cplusplus
extern "C" {
#endif
/* TSMALLOC_NOEXCEPT_ stays defined, for the other headers. */
#if !defined(__cplusplus)
#define TSMALLOC_NOEXCEPT_
#elif __cplusplus >= 201103L
#define TSMALLOC_NOEXCEPT_ noexcept
#else
#define TSMALLOC_NOEXCEPT_ throw()
#endif

/* The bytes that the first argument points to are not read, so they may be uninitialised. */
#ifndef TSMALLOC_UNREAD_
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define TSMALLOC_UNREAD_ __attribute__((access(none, 1)))
#else
#define TSMALLOC_UNREAD_
#endif
#endif

#if defined(TSMALLOC_PREFIXED) && !defined(TSMALLOC_REQUIRED)
#define TSMALLOC_REQUIRED
#endif
#ifdef TSMALLOC_REQUIRED
#define TSMALLOC_FUNCTION_(result, name, parameters) result name parameters TSMALLOC_NOEXCEPT_
#else
/* noplt: the address is loaded anyway, since it may be null, so calling through it saves a jump. */
#ifdef __has_attribute
#if __has_attribute(noplt)
#define TSMALLOC_NO_PLT_ , noplt
#endif
#endif
#ifndef TSMALLOC_NO_PLT_
#define TSMALLOC_NO_PLT_
#endif

/* Declares two functions: name_of_library is the library's, null if there is none, under the plain
 * name in assembly; the other is what the program calls, defined at the end of this header. */
#define TSMALLOC_FUNCTION_(result, name, parameters)                           \
  extern result name##_of_library parameters TSMALLOC_NOEXCEPT_ __asm__(#name) \
      __attribute__((weak TSMALLOC_NO_PLT_));                                  \
  static inline result name parameters TSMALLOC_NOEXCEPT_ __asm__("tsmalloc_inline_" #name)
#endif
/* The library's functions are visible whatever the program's visibility; those of prefixed.h are
 * not. */
#ifdef TSMALLOC_PREFIXED
#pragma GCC visibility push(hidden)
#else
#pragma GCC visibility push(default)
#endif

/* Returns the version of the library, encoded like TSMALLOC_VERSION.
 * Without tsmalloc: 0.
 * Async-signal-safe. Cost: a call. */
TSMALLOC_FUNCTION_(int, ts_version, (void));

/* Returns how many bytes of a block may be used, at least the requested size; 0 for null. Only
 * realloc changes this size. A pointer that is not the start of a block in use is misuse: the
 * engine and the hardened library report it according to TSMALLOC_ON_MISUSE, and return 0 if the
 * process keeps running; the teaching heaps do not detect it. A compiler that tracks sizes
 * (_FORTIFY_SOURCE=3) only knows the requested size, so to use the surplus, request ts_good_size
 * instead.
 * Without tsmalloc: malloc_usable_size.
 * Not async-signal-safe. Cost: a few loads in the engine, a lock in the hardened library. */
TSMALLOC_FUNCTION_(TSMALLOC_UNREAD_ size_t, ts_usable_size, (const void* block));

/* Returns the size to request instead of `size`: the largest that costs no more memory. It is at
 * least `size`, and is its own good size. `alignment` is that of the request: a power of two, or 0
 * for malloc's.
 * Returns 0 if no such block can exist, because `alignment` is invalid or the size exceeds
 * PTRDIFF_MAX. (A block of 0 bytes can exist; its good size is that of the smallest block, or 0 in
 * the hardened library, where none of its bytes may be touched.)
 * Without tsmalloc: `size`, or 0 by the same rule.
 * Async-signal-safe. Cost: a table look-up. */
TSMALLOC_FUNCTION_(size_t, ts_good_size, (size_t size, size_t alignment));

/* Returns free memory to the operating system, except `keep_bytes` of it, which may be any number.
 * Flushes the calling thread's cache bins and collects what other threads freed first; blocks in
 * the bins of other threads stay there.
 * Returns 1 if any memory was returned, else 0.
 * Without tsmalloc: malloc_trim, or 0 if libc has none.
 * Not async-signal-safe. Cost: locks, and system calls depending on the number of free ranges. */
TSMALLOC_FUNCTION_(int, ts_trim, (size_t keep_bytes));

/* Does a step of background purging, for event loops: idle memory is returned even though the
 * program calls neither malloc nor free. The result is a timeout for poll or epoll_wait: the
 * milliseconds until the next step is due, at most 200; 0: call again at once; -1: nothing to do
 * until the program frees more.
 * A step purges idle memory in the calling thread's slabs. If the library has no background thread
 * (TSMALLOC_BACKGROUND), it also purges a slice of the process's idle memory. The hardened library
 * and the teaching heaps have no such work and return -1.
 * Without tsmalloc: -1.
 * Not async-signal-safe. Cost: two locks and a clock read; with work to do, a few
 * milliseconds. */
TSMALLOC_FUNCTION_(int, ts_housekeep, (void));

/* Changes an option of the library (TSMALLOC_*) at run time. Name and value are as in the
 * environment; the prefix TSMALLOC_ is optional. The environment is read first, and the last
 * change counts. Threads may use the old value for a moment.
 * Returns 0; ENOENT for an unknown option; EINVAL for an invalid value, with nothing changed; or
 * EPERM if the option can only be set at process start (TSMALLOC_SHOW).
 * A soft limit above a hard one of the same unit is EINVAL: to raise both, raise
 * TSMALLOC_HARD_LIMIT first; to lower both, lower TSMALLOC_LIMIT first. A hard limit below the
 * memory in use is accepted: requests that need fresh pages, small ones included, then fail until
 * enough is freed.
 * Every library accepts every option; docs/use.md says which ones each of them uses.
 * Without tsmalloc: ENOSYS.
 * Not async-signal-safe. Cost: a search of a short table; for TSMALLOC_BACKGROUND, starting a
 * thread. */
TSMALLOC_FUNCTION_(int, ts_option_set, (const char* name, const char* value));

/* Writes the value of an option, zero-terminated, to `value`, which has room for `size` bytes; 32
 * are always enough.
 * Returns 0; ENOENT for an unknown option; or ERANGE, with nothing written, if the text does not
 * fit.
 * Without tsmalloc: ENOSYS.
 * Async-signal-safe. Cost: a search of a short table. */
TSMALLOC_FUNCTION_(int, ts_option_get, (const char* name, char* value, size_t size));

/* The events of ts_on_event. */
#define TSMALLOC_EVENT_LIMIT 1      /* the soft limit is exceeded: TSMALLOC_LIMIT */
#define TSMALLOC_EVENT_HARD_LIMIT 2 /* a request is refused: TSMALLOC_HARD_LIMIT */

/* Calls `handler` from now on when one of these events happens, the first at most once a minute;
 * null removes it. `bytes` is the memory that was in use. The handler runs during a later malloc,
 * in the thread that called it, and in one thread at a time. It may call any function of this
 * library and must return; its own requests do not cause events. Compilers assume that malloc
 * changes no variable of the program, so whatever the handler writes must be volatile or atomic.
 * The handler cannot rescue the request that was refused, which has failed by then. C++'s
 * std::set_new_handler can: it runs within operator new, which then tries again.
 * Returns 0, or ENOTSUP in the hardened library and the teaching heaps, which have no limits.
 * Without tsmalloc: ENOSYS.
 * Async-signal-safe. Cost: a store. */
TSMALLOC_FUNCTION_(int, ts_on_event, (void (*handler)(int event, size_t bytes)));

/* Starts sampling for a heap profile: about one sample per `interval` allocated bytes, whose call
 * stack is kept until the block is freed. Each malloc is sampled with probability 1 - exp(-block /
 * interval), whatever was allocated and freed before. Blocks of arenas are never sampled. An
 * interval of 0 means 512 KiB; the maximum is 1 GiB. Calling it again changes the interval. The
 * value of the option PROFILE stays as it is here and in ts_profile_stop; setting it to off does
 * not stop the sampling that this function started.
 * Returns 0; EINVAL for an invalid interval; ENOMEM; or ENOTSUP in the hardened library and the
 * teaching heaps.
 * Without tsmalloc: ENOSYS.
 * Not async-signal-safe. Cost: a lock, and a walk through the threads' heaps. */
TSMALLOC_FUNCTION_(int, ts_profile_start, (size_t interval));

/* Stops sampling. Samples of blocks in use are kept, and their frees are still recorded.
 * Errors and cost: as ts_profile_start. */
TSMALLOC_FUNCTION_(int, ts_profile_stop, (void));

/* The values of `what` for ts_profile_write. */
#define TSMALLOC_PROFILE_NOW 0  /* blocks in use now */
#define TSMALLOC_PROFILE_PEAK 1 /* blocks in use at the peak of memory, accurate to a 32nd */

/* Writes the profile to an open file in the format of google/pprof's profile.proto
 * (docs/formats/profile.md), for `tsmalloc profile show FILE` and pprof.
 * Returns 0; EINVAL for an invalid `what`; ENOMEM; ENOTSUP as above; or an error of write(2).
 * Without tsmalloc: ENOSYS.
 * Not async-signal-safe. Cost: a copy of the profile under a lock, and system calls. */
TSMALLOC_FUNCTION_(int, ts_profile_write, (int descriptor, int what));

/* Returns all free memory to the operating system, like ts_trim(0), and waits for a purge that is
 * in progress.
 * Returns how many bytes were returned meanwhile, including purges by other threads; 0 in the
 * teaching heaps and the hardened library, which do not count them.
 * Without tsmalloc: 0, after malloc_trim(0) if libc has it.
 * Not async-signal-safe. Cost: as ts_trim. */
TSMALLOC_FUNCTION_(size_t, ts_purge, (void));

/* Flushes the calling thread's caches: its cache bins, batched frees of other threads' blocks, and
 * spare pages become available to all threads. For pool threads that are about to wait for a long
 * time. No effect in the hardened library and the teaching heaps.
 * Without tsmalloc: nothing.
 * Not async-signal-safe. Cost: locks, and a few loads and stores per block. */
TSMALLOC_FUNCTION_(void, ts_thread_flush, (void));

/* Allocates a block of at least `size` bytes, aligned to `alignment`: a power of two, or 0 for
 * malloc's. Sets `*usable`, if not null, to the bytes that may be used, at least `size`; 0 on
 * failure. Free the block with free, which must be tsmalloc's, too.
 * Returns null if memory runs out or the alignment is invalid.
 * Without tsmalloc: malloc or posix_memalign; `*usable` is `size`.
 * Not async-signal-safe. Cost: as malloc. */
TSMALLOC_FUNCTION_(void*, ts_alloc_at_least, (size_t size, size_t alignment, size_t* usable));

/* Grows a block of malloc to at least `size` bytes without moving it. May return the end of a
 * larger block. A pointer that is not the start of a block is misuse, as for ts_usable_size.
 * Returns 1, or 0 with nothing changed.
 * Without tsmalloc: 1 if the block has that many bytes already.
 * Not async-signal-safe. Cost: a few loads; for large blocks a lock. */
TSMALLOC_FUNCTION_(int, ts_expand, (void* block, size_t size));

/* Like realloc, but the bytes from `old_size` to `size` read as zero; `old_size` is how much of the
 * block the program uses. `size` must not be 0. If `block` is null, allocates.
 * Returns null, with the block unchanged, if memory runs out or `size` is 0.
 * Without tsmalloc: the same.
 * Not async-signal-safe. Cost: as realloc, plus writing the zeros. */
TSMALLOC_FUNCTION_(void*, ts_rezalloc, (void* block, size_t old_size, size_t size));

/* ---- Statistics and inspection ---- */

/* The library's memory: bytes at this moment unless stated otherwise; exact if no other thread
 * allocates or frees meanwhile. In the hardened library and the teaching heaps, small_bytes covers
 * all blocks, page_bytes all free memory, and other figures are 0 or missing. */
typedef struct ts_statistics {
  size_t mapped_bytes;     /* the sum of the eight below: address space in use */
  size_t small_bytes;      /* the program's blocks up to TSMALLOC_MAX_SMALL_SIZE, with rounding */
  size_t large_bytes;      /* pages of its larger blocks, whether touched or not */
  size_t bin_bytes;        /* free, in cache bins and batches of threads */
  size_t waiting_bytes;    /* freed by another thread, not yet collected by the owner */
  size_t slab_bytes;       /* free, in slabs next to blocks in use */
  size_t ended_bytes;      /* free, in slabs and bins of threads that ended */
  size_t page_bytes;       /* free pages, kept for reuse */
  size_t returned_bytes;   /* without memory: returned to the system, or never used */
  size_t table_bytes;      /* the library's tables, not part of mapped_bytes */
  size_t heaps;            /* one per thread that has allocated; including ... */
  size_t ended_heaps;      /* ... those of threads that ended */
  size_t growths;          /* how often mapped_bytes grew since the start */
  size_t purged_bytes;     /* bytes returned to the system since the start */
  size_t limit_bytes;      /* soft limit: above it, free memory is purged at once; 0: none yet */
  size_t hard_limit_bytes; /* hard limit: above it, malloc fails; 0: none */
} ts_statistics;

/* Fills the first `size` bytes of `*statistics`; pass sizeof(ts_statistics). Fields that the
 * library does not have are set to 0.
 * Returns 1.
 * Without tsmalloc: 0, with `*statistics` all 0.
 * Not async-signal-safe. Cost: a lock, and a walk through all slabs and large blocks. */
TSMALLOC_FUNCTION_(int, ts_stats, (ts_statistics * statistics, size_t size));

enum {
  TSMALLOC_TEXT,      /* lines for people */
  TSMALLOC_JSON,      /* one line, an object (docs/observe.md) */
  TSMALLOC_PROMETHEUS /* the text format of Prometheus */
};

/* Writes the figures of ts_stats to a file descriptor, without stdio.
 * Returns 0, EINVAL for an unknown format, or an error of write(2).
 * Without tsmalloc: ENOSYS.
 * Not async-signal-safe. Cost: as ts_stats, and a system call. */
TSMALLOC_FUNCTION_(int, ts_stats_write, (int descriptor, int format));

/* Returns 1 if a block in use of this library starts at the address, else 0. Any address is
 * allowed. For programs with two allocators. Always 0 in the teaching heaps, which cannot tell.
 * Without tsmalloc: 0.
 * Not async-signal-safe. Cost: as ts_block_of. */
TSMALLOC_FUNCTION_(TSMALLOC_UNREAD_ int, ts_owns, (const void* block));

enum {
  TSMALLOC_USED,   /* a block of the program, or its pages */
  TSMALLOC_FREE,   /* free, for any request that fits */
  TSMALLOC_CACHED, /* freed, but kept by a thread or not yet collected by its owner */
  TSMALLOC_SLAB    /* pages cut into blocks of one size */
};

/* A piece of the library's memory: a block, or pages. */
typedef struct ts_extent {
  const void* address;
  size_t size;       /* bytes */
  size_t used_size;  /* part of size: in blocks of the program; in a slab also cached blocks */
  size_t block_size; /* bytes of each block in it; 0 if there are none */
  int state;         /* TSMALLOC_USED, and so on */
  unsigned heap;     /* number of the thread heap that owns it; 0: none */
} ts_extent;

/* Finds the block that contains an address, in use or not, and the slab or pages that contain the
 * block. Any address is allowed, also one inside a block. Either pointer may be null. For programs
 * that defragment: the used part of the pages tells how much would be freed by moving the block.
 * Returns 1, or 0 with nothing written if there is no such block. Always 0 in the hardened library
 * and the teaching heaps. If other threads allocate or free, the answer is only a snapshot, and a
 * block freed just now by another thread may still count as in use.
 * Without tsmalloc: 0.
 * Not async-signal-safe. Cost: a few loads; outside small blocks, a lock and a walk through all
 * slabs and large blocks. */
TSMALLOC_FUNCTION_(TSMALLOC_UNREAD_ int, ts_block_of,
                   (const void* address, ts_extent* block, ts_extent* pages));

/* The values of `what` for ts_visit. */
enum {
  TSMALLOC_PAGES, /* slabs, large blocks and free pages, as a consistent snapshot */
  TSMALLOC_BLOCKS /* blocks of slabs, large blocks and free pages */
};

/* Calls `visit` for each piece of the library's memory, in address order, until it returns
 * nonzero.
 * Returns the last result of `visit`; 0 after the last piece; -1 if memory runs out, `what` is
 * unknown or `visit` is null.
 * For blocks, no other thread may allocate or free meanwhile, as in the child of a fork. A heap
 * profile keeps one block next to each small sample; these are visited as in use.
 * `visit` may allocate and free, but must not visit blocks, fork, or jump out. It may see blocks
 * that it allocated itself, and see some that it freed as in use.
 * The hardened library and the teaching heaps visit only blocks, in any order, and `visit` must
 * not allocate or free.
 * Without tsmalloc: -1.
 * Not async-signal-safe. Cost: a walk through the tables; for blocks, through all free lists; for
 * pages, a mapping of 48 bytes per piece. */
TSMALLOC_FUNCTION_(int, ts_visit,
                   (int what, int (*visit)(const ts_extent* extent, void* argument),
                    void* argument));

/* Returns 1 if a library of tsmalloc is in the process, else 0. (Another malloc may come before it
 * and be the one that the program uses; the library then has none of the program's blocks.)
 * Async-signal-safe. Cost: a load. */
static inline int ts_available(void) TSMALLOC_NOEXCEPT_ {
#ifdef TSMALLOC_REQUIRED
  return 1;
#else
  return ts_version_of_library ? 1 : 0;
#endif
}

#ifndef TSMALLOC_REQUIRED
/* ---- For programs that may run without a library ---- */

extern TSMALLOC_UNREAD_ size_t ts_usable_size_of_libc(const void* block) TSMALLOC_NOEXCEPT_
    __asm__("malloc_usable_size");
extern void* ts_malloc_of_libc(size_t size) TSMALLOC_NOEXCEPT_ __asm__("malloc");
extern void* ts_realloc_of_libc(void* block, size_t size) TSMALLOC_NOEXCEPT_ __asm__("realloc");
extern int ts_memalign_of_libc(void** block, size_t alignment, size_t size) TSMALLOC_NOEXCEPT_
    __asm__("posix_memalign");
extern int ts_trim_of_libc(size_t keep_bytes) TSMALLOC_NOEXCEPT_ __asm__("malloc_trim")
    __attribute__((weak));

static inline int ts_version(void) TSMALLOC_NOEXCEPT_ {
  return ts_version_of_library ? ts_version_of_library() : 0;
}

static inline size_t ts_usable_size(const void* block) TSMALLOC_NOEXCEPT_ {
  return ts_usable_size_of_library ? ts_usable_size_of_library(block)
                                   : ts_usable_size_of_libc(block);
}

static inline size_t ts_good_size(size_t size, size_t alignment) TSMALLOC_NOEXCEPT_ {
  const size_t most = (size_t)-1 >> 1;
  if (ts_good_size_of_library) return ts_good_size_of_library(size, alignment);
  if (alignment == 0) alignment = TSMALLOC_MIN_ALIGNMENT;
  if ((alignment & (alignment - 1)) != 0 || alignment > most) return 0;
  return size <= most - alignment ? size : 0;
}

static inline int ts_trim(size_t keep_bytes) TSMALLOC_NOEXCEPT_ {
  if (ts_trim_of_library) return ts_trim_of_library(keep_bytes);
  return ts_trim_of_libc ? ts_trim_of_libc(keep_bytes) : 0;
}

static inline int ts_housekeep(void) TSMALLOC_NOEXCEPT_ {
  return ts_housekeep_of_library ? ts_housekeep_of_library() : -1;
}

static inline int ts_option_set(const char* name, const char* value) TSMALLOC_NOEXCEPT_ {
  return ts_option_set_of_library ? ts_option_set_of_library(name, value) : ENOSYS;
}

static inline int ts_option_get(const char* name, char* value, size_t size) TSMALLOC_NOEXCEPT_ {
  return ts_option_get_of_library ? ts_option_get_of_library(name, value, size) : ENOSYS;
}

static inline int ts_on_event(void (*handler)(int event, size_t bytes)) TSMALLOC_NOEXCEPT_ {
  return ts_on_event_of_library ? ts_on_event_of_library(handler) : ENOSYS;
}

static inline int ts_profile_start(size_t interval) TSMALLOC_NOEXCEPT_ {
  return ts_profile_start_of_library ? ts_profile_start_of_library(interval) : ENOSYS;
}

static inline int ts_profile_stop(void) TSMALLOC_NOEXCEPT_ {
  return ts_profile_stop_of_library ? ts_profile_stop_of_library() : ENOSYS;
}

static inline int ts_profile_write(int descriptor, int what) TSMALLOC_NOEXCEPT_ {
  return ts_profile_write_of_library ? ts_profile_write_of_library(descriptor, what) : ENOSYS;
}

static inline size_t ts_purge(void) TSMALLOC_NOEXCEPT_ {
  if (ts_purge_of_library) return ts_purge_of_library();
  if (ts_trim_of_libc) ts_trim_of_libc(0);
  return 0;
}

static inline void ts_thread_flush(void) TSMALLOC_NOEXCEPT_ {
  if (ts_thread_flush_of_library) ts_thread_flush_of_library();
}

static inline void* ts_alloc_at_least(size_t size, size_t alignment,
                                      size_t* usable) TSMALLOC_NOEXCEPT_ {
  void* block = (void*)0;
  if (ts_alloc_at_least_of_library) return ts_alloc_at_least_of_library(size, alignment, usable);
  if (alignment <= TSMALLOC_MIN_ALIGNMENT && (alignment & (alignment - 1)) == 0) {
    block = ts_malloc_of_libc(size);
  } else if (ts_memalign_of_libc(&block, alignment, size) != 0) {
    block = (void*)0;
  }
  if (usable) *usable = block ? size : 0;
  return block;
}

static inline int ts_expand(void* block, size_t size) TSMALLOC_NOEXCEPT_ {
  if (ts_expand_of_library) return ts_expand_of_library(block, size);
  return block && size <= ts_usable_size_of_libc(block);
}

static inline void* ts_rezalloc(void* block, size_t old_size, size_t size) TSMALLOC_NOEXCEPT_ {
  char* moved = (char*)0;
  if (ts_rezalloc_of_library) return ts_rezalloc_of_library(block, old_size, size);
  if (size != 0) moved = (char*)ts_realloc_of_libc(block, size);
  if (moved && size > old_size) __builtin_memset(moved + old_size, 0, size - old_size);
  return moved;
}

static inline int ts_stats(ts_statistics* statistics, size_t size) TSMALLOC_NOEXCEPT_ {
  if (ts_stats_of_library) return ts_stats_of_library(statistics, size);
  __builtin_memset(statistics, 0, size);
  return 0;
}

static inline int ts_stats_write(int descriptor, int format) TSMALLOC_NOEXCEPT_ {
  return ts_stats_write_of_library ? ts_stats_write_of_library(descriptor, format) : ENOSYS;
}

static inline int ts_owns(const void* block) TSMALLOC_NOEXCEPT_ {
  return ts_owns_of_library ? ts_owns_of_library(block) : 0;
}

static inline int ts_block_of(const void* address, ts_extent* block,
                              ts_extent* pages) TSMALLOC_NOEXCEPT_ {
  return ts_block_of_of_library ? ts_block_of_of_library(address, block, pages) : 0;
}

static inline int ts_visit(int what, int (*visit)(const ts_extent* extent, void* argument),
                           void* argument) TSMALLOC_NOEXCEPT_ {
  return ts_visit_of_library ? ts_visit_of_library(what, visit, argument) : -1;
}
#endif

#pragma GCC visibility pop
#undef TSMALLOC_FUNCTION_
#undef TSMALLOC_UNREAD_
#ifdef __cplusplus
}
#endif

#endif
