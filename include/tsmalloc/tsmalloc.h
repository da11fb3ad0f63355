/* tsmalloc/tsmalloc.h: what a program can ask of tsmalloc beside the malloc family itself.
 *
 * Every drop-in library has these functions: libtsmalloc.so, libtsmalloc-secure.so, the teaching
 * heaps, libtsmalloc.a and tsmalloc.o. A program that includes this header needs none of them: it
 * calls the library that is in the process, preloaded or linked, and ts_available says whether one
 * is. Without one, each function does what its comment says under "without tsmalloc".
 *
 * Two limits. A program that clang compiled without -fPIE and -fPIC learns of a library when it is
 * linked, so under LD_PRELOAD its calls are those without tsmalloc. And a linker takes no library for
 * these functions alone, only for malloc and the like. Both end where the program defines
 * TSMALLOC_REQUIRED before it includes this header: the functions are then plain ones, without
 * which the program does not link.
 *
 * Sizes are bytes. All functions may be called from any thread, and at any time from before the
 * first constructor to the last destructor. None reports an error in errno. */
#ifndef TSMALLOC_TSMALLOC_H
#define TSMALLOC_TSMALLOC_H

#include <errno.h>
#include <stddef.h>

/* The version of this header, as a number: version 1.2.3 is 10203. */
#define TSMALLOC_VERSION_MAJOR 0
#define TSMALLOC_VERSION_MINOR 1
#define TSMALLOC_VERSION_PATCH 0
#define TSMALLOC_VERSION \
  (TSMALLOC_VERSION_MAJOR * 10000 + TSMALLOC_VERSION_MINOR * 100 + TSMALLOC_VERSION_PATCH)

/* The alignment of every block of malloc, whatever its size. */
#define TSMALLOC_MIN_ALIGNMENT 16

/* The engine's largest small block. A larger one has whole pages of 16 KiB, which any request can use
 * as soon as it is free, and begins 1 to 64 cache lines into the first. A property of this version of
 * the engine. */
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
/* Its address is at hand, since it may be null: a call by it is a jump less. */
#ifdef __has_attribute
#if __has_attribute(noplt)
#define TSMALLOC_NO_PLT_ , noplt
#endif
#endif
#ifndef TSMALLOC_NO_PLT_
#define TSMALLOC_NO_PLT_
#endif

/* Two functions: name_of_library is the library's, null where there is none, and bears the plain
 * name in assembly; the other, which the program calls, is defined at the end of this header. */
#define TSMALLOC_FUNCTION_(result, name, parameters)                           \
  extern result name##_of_library parameters TSMALLOC_NOEXCEPT_ __asm__(#name) \
      __attribute__((weak TSMALLOC_NO_PLT_));                                  \
  static inline result name parameters TSMALLOC_NOEXCEPT_ __asm__("tsmalloc_inline_" #name)
#endif
/* The library's functions are visible, whatever the program's are; those of prefixed.h are not. */
#ifdef TSMALLOC_PREFIXED
#pragma GCC visibility push(hidden)
#else
#pragma GCC visibility push(default)
#endif

/* The library's version, as TSMALLOC_VERSION counts. Without tsmalloc: 0.
 * Safe in signal handlers. Cost: a call. */
TSMALLOC_FUNCTION_(int, ts_version, (void));

/* The bytes of a block that may be used, at least as many as were asked for; 0 for null. Only
 * realloc changes it. A pointer at which no block in use begins is misuse: the engine and the
 * hardened library report it as TSMALLOC_ON_MISUSE says, and return 0 if the process goes on; the
 * teaching heaps do not detect it. A compiler that tracks sizes (_FORTIFY_SOURCE=3) knows the
 * requested size alone, so a program that wants the surplus asks for ts_good_size instead.
 * Without tsmalloc: malloc_usable_size.
 * Not for signal handlers. Cost: some loads in the engine, a lock in the hardened library. */
TSMALLOC_FUNCTION_(TSMALLOC_UNREAD_ size_t, ts_usable_size, (const void* block));

/* The size to ask for instead of `size`: the most bytes that the library knows to need no more
 * memory. Never less than `size`, and ts_good_size of the result is the result. `alignment` is that
 * of the request: a power of two, or 0 for malloc's.
 * 0 if no such block can exist: another `alignment`, or a size beyond PTRDIFF_MAX. (A block of 0
 * bytes can: its good size is that of the smallest block; 0 in the hardened library, which lets no
 * byte of it be touched.)
 * Without tsmalloc: `size`, or 0 by the same rule.
 * Safe in signal handlers. Cost: a table look-up. */
TSMALLOC_FUNCTION_(size_t, ts_good_size, (size_t size, size_t alignment));

/* Gives free memory back to the operating system, all but `keep_bytes` of it. 1 if any went back,
 * else 0. The calling thread's cache bins are flushed and what other threads freed is collected
 * first; blocks in the bins of other threads stay there. Any `keep_bytes` is legal.
 * Without tsmalloc: malloc_trim, or 0 where libc has none.
 * Not for signal handlers. Cost: locks, and system calls as the free memory has ranges. */
TSMALLOC_FUNCTION_(int, ts_trim, (size_t keep_bytes));

/* A step of housekeeping, for a program that waits for events: memory that stays idle goes back
 * although the program calls neither malloc nor free. The result is a timeout for poll or
 * epoll_wait: the next step is due in so many milliseconds, at most 200; at once if it is 0; and if
 * it is -1, no step is due until the program frees more.
 * A step gives back what the calling thread's slabs keep idle. Where the library has no thread of
 * its own for it (TSMALLOC_BACKGROUND), it also gives back a slice of what the process keeps idle.
 * -1 in the hardened library and in the teaching heaps, which have no such work.
 * Without tsmalloc: -1.
 * Not for signal handlers. Cost: two locks and a look at the clock; if there is work to do, some
 * milliseconds of it. */
TSMALLOC_FUNCTION_(int, ts_housekeep, (void));

/* Changes an option of the library (TSMALLOC_*) while the program runs; both are texts that the
 * environment could have, the name with or without TSMALLOC_. Options of the environment are read
 * first, and the last change counts. Threads may go on with the former value for a moment.
 * 0, or an error: ENOENT without such an option, EINVAL of another value (nothing changes then),
 * EPERM where the option is for the start of a process alone (TSMALLOC_SHOW).
 * A soft limit above a hard one of the same unit is EINVAL. To raise both, raise TSMALLOC_HARD_LIMIT
 * first; to lower both, lower TSMALLOC_LIMIT first. A hard limit below what is in use is taken: any
 * request that needs fresh pages then fails, small ones included, until enough is free.
 * Every library takes every option; docs/use.md says which of them each one reads.
 * Without tsmalloc: ENOSYS.
 * Not for signal handlers. Cost: a look at a short table; the start of a thread, for
 * TSMALLOC_BACKGROUND. */
TSMALLOC_FUNCTION_(int, ts_option_set, (const char* name, const char* value));

/* Writes the value of an option, as a text that ends with a zero, to `value`, which has room for
 * `size` bytes; 32 are enough for each. 0, or an error: ENOENT without such an option; ERANGE, with
 * nothing written, if the text does not fit.
 * Without tsmalloc: ENOSYS.
 * Safe in signal handlers. Cost: a look at a short table. */
TSMALLOC_FUNCTION_(int, ts_option_get, (const char* name, char* value, size_t size));

/* What a handler of ts_on_event is told. */
#define TSMALLOC_EVENT_LIMIT 1      /* the soft limit is passed: TSMALLOC_LIMIT */
#define TSMALLOC_EVENT_HARD_LIMIT 2 /* a request is refused: TSMALLOC_HARD_LIMIT */

/* Calls `handler` from now on when one of these happens, the first once a minute at most; null for
 * none. `bytes` were in use then. It is called in the course of some later malloc, by that thread and
 * by one thread at a time. It may call any function of this library, and has to return; it is not told
 * of its own requests. Compilers take it that malloc changes no variable of the program: what it writes
 * is volatile or atomic.
 * It cannot save the request that was refused, which has failed by then. std::set_new_handler of C++
 * can: that handler runs within operator new, which then tries again.
 * 0, or ENOTSUP in the hardened library and in the teaching heaps, which have no limits.
 * Without tsmalloc: ENOSYS.
 * Safe in signal handlers. Cost: a store. */
TSMALLOC_FUNCTION_(int, ts_on_event, (void (*handler)(int event, size_t bytes)));

/* Takes a heap profile from now on: of the blocks that are allocated, about one in `interval` bytes is
 * a sample, whose call stack is kept until it is freed. Each malloc is a sample with probability
 * 1 - exp(-block / interval), whatever was allocated and freed before. Blocks of arenas are never one.
 * 0 stands for 512 KiB, and 1 GiB is the most. A call while samples are taken changes the interval.
 * The option PROFILE keeps its value here and in ts_profile_stop; set to off, it leaves samples of
 * this function on.
 * 0, or an error: EINVAL of another interval, ENOMEM without room, ENOTSUP in the hardened library and
 * in the teaching heaps.
 * Without tsmalloc: ENOSYS.
 * Not for signal handlers. Cost: a lock, and a look at each thread's heap. */
TSMALLOC_FUNCTION_(int, ts_profile_start, (size_t interval));

/* Takes no more samples. What is known of blocks in use stays, and their frees are noted.
 * Errors and cost: as ts_profile_start. */
TSMALLOC_FUNCTION_(int, ts_profile_stop, (void));

/* What ts_profile_write writes as in use. */
#define TSMALLOC_PROFILE_NOW 0  /* blocks in use now */
#define TSMALLOC_PROFILE_PEAK 1 /* blocks that were in use when most bytes were, to a 32nd */

/* Writes the profile to an open file, as google/pprof's profile.proto (docs/formats/profile.md).
 * `tsmalloc profile show FILE` and pprof read it. 0, or an error: EINVAL of another `what`, ENOMEM,
 * ENOTSUP as above, or what write(2) says.
 * Without tsmalloc: ENOSYS.
 * Not for signal handlers. Cost: a copy of the profile under a lock, and system calls. */
TSMALLOC_FUNCTION_(int, ts_profile_write, (int descriptor, int what));

/* Gives all free memory back to the operating system, as ts_trim(0) does; a purge in progress is
 * waited for. Returns how many bytes went back meanwhile, those of other threads' purges included; 0
 * in the teaching heaps and the hardened library, which do not count them.
 * Without tsmalloc: 0, after malloc_trim(0) where libc has it.
 * Not for signal handlers. Cost: as ts_trim. */
TSMALLOC_FUNCTION_(size_t, ts_purge, (void));

/* Gives up what the calling thread keeps aside: its cache bins, batches of frees of other threads'
 * blocks, and spare pages go where every thread finds them. For a thread of a pool that is about to
 * wait for long. Without effect in the hardened library and in the teaching heaps.
 * Without tsmalloc: nothing.
 * Not for signal handlers. Cost: locks, and some loads and stores for each block. */
TSMALLOC_FUNCTION_(void, ts_thread_flush, (void));

/* A block of at least `size` bytes at a multiple of `alignment`: a power of two, or 0 for malloc's.
 * `*usable`, if not null, becomes the bytes that may be used, at least `size`; 0 on failure. Free it
 * by free, which has to be tsmalloc's, too. Null if there is no memory, or no such alignment.
 * Without tsmalloc: malloc or posix_memalign; `*usable` is `size`.
 * Not for signal handlers. Cost: as malloc. */
TSMALLOC_FUNCTION_(void*, ts_alloc_at_least, (size_t size, size_t alignment, size_t* usable));

/* Makes the block of malloc hold at least `size` bytes without moving it: 1; or changes nothing: 0.
 * A pointer at which no block begins is misuse, as for ts_usable_size. May give the end of a larger
 * block back.
 * Without tsmalloc: 1 if the block has so many bytes anyway.
 * Not for signal handlers. Cost: some loads, for large blocks a lock. */
TSMALLOC_FUNCTION_(int, ts_expand, (void* block, size_t size));

/* As realloc to `size` bytes, which are more than 0, of a block of which the program uses `old_size`;
 * bytes from `old_size` to `size` read as zero. Null if there is no memory, or `size` is 0: the block
 * is unchanged. Null for `block` allocates.
 * Without tsmalloc: the same.
 * Not for signal handlers. Cost: as realloc, and to write the zeros. */
TSMALLOC_FUNCTION_(void*, ts_rezalloc, (void* block, size_t old_size, size_t size));

/* ---- What the library knows ---- */

/* Memory of the library: bytes at this moment, unless the comment says otherwise; exact if no other
 * thread allocates or frees meanwhile. Of the hardened library and the teaching heaps, small_bytes
 * is what all blocks take, page_bytes all that is free, and other figures are 0 or missing. */
typedef struct ts_statistics {
  size_t mapped_bytes;     /* the sum of the eight below: address space in use */
  size_t small_bytes;      /* blocks of the program up to TSMALLOC_MAX_SMALL_SIZE, with rounding */
  size_t large_bytes;      /* pages of its larger blocks, whether it has touched them or not */
  size_t bin_bytes;        /* free, in cache bins and batches of threads */
  size_t waiting_bytes;    /* freed by other threads than their owner, which has not seen it yet */
  size_t slab_bytes;       /* free, in slabs beside blocks in use */
  size_t ended_bytes;      /* free, in slabs and bins of threads that ended */
  size_t page_bytes;       /* free pages, kept to be used again */
  size_t returned_bytes;   /* without memory: given back to the system, or not used yet */
  size_t table_bytes;      /* the library's tables, beside mapped_bytes */
  size_t heaps;            /* one for each thread that allocated; of those, ... */
  size_t ended_heaps;      /* ... the heaps of threads that ended */
  size_t growths;          /* since the start: how often mapped_bytes grew */
  size_t purged_bytes;     /* since the start: bytes that went back to the system */
  size_t limit_bytes;      /* beyond it, free memory goes back at once; 0: none was found yet */
  size_t hard_limit_bytes; /* beyond it, malloc fails; 0: none */
} ts_statistics;

/* Fills the first `size` bytes of `*statistics`; `size` is sizeof(ts_statistics) as the caller was
 * compiled. Fields that the library does not have become 0. Returns 1.
 * Without tsmalloc: 0, and `*statistics` is all 0.
 * Not for signal handlers. Cost: a lock, and a walk through all slabs and large blocks. */
TSMALLOC_FUNCTION_(int, ts_stats, (ts_statistics * statistics, size_t size));

enum {
  TSMALLOC_TEXT,      /* lines for people */
  TSMALLOC_JSON,      /* one line, an object (docs/observe.md) */
  TSMALLOC_PROMETHEUS /* the text format of Prometheus */
};

/* Writes what ts_stats tells to a file descriptor, without stdio. 0, or an error of write(2);
 * EINVAL: no such format.
 * Without tsmalloc: ENOSYS.
 * Not for signal handlers. Cost: as ts_stats, and a system call. */
TSMALLOC_FUNCTION_(int, ts_stats_write, (int descriptor, int format));

/* 1 if a block of the library that is in use begins at the address, which may be any; else 0. For
 * programs with two allocators. 0 in the teaching heaps, which cannot tell.
 * Without tsmalloc: 0.
 * Not for signal handlers. Cost: as ts_block_of. */
TSMALLOC_FUNCTION_(TSMALLOC_UNREAD_ int, ts_owns, (const void* block));

enum {
  TSMALLOC_USED,   /* a block of the program; or pages of one */
  TSMALLOC_FREE,   /* free, for any request that fits */
  TSMALLOC_CACHED, /* freed, and kept aside by a thread, or not yet seen by its owner */
  TSMALLOC_SLAB    /* pages that are cut into blocks of one size */
};

/* A piece of the library's memory, be it a block or pages. */
typedef struct ts_extent {
  const void* address;
  size_t size;       /* bytes */
  size_t used_size;  /* of those, in blocks of the program; of a slab also in cached blocks */
  size_t block_size; /* bytes of each block in it; 0 if it has none */
  int state;         /* TSMALLOC_USED, and so on */
  unsigned heap;     /* a number of the thread heap that it belongs to; 0: none */
} ts_extent;

/* The block that an address lies in, be it in use or not, and the slab or the pages that it is part
 * of. Any address: of the middle of a block, or of none. Either pointer may be null. 1 if there is
 * one, else 0, with nothing written. The used part of the pages tells how much of them a move of
 * the block would free, for programs that defragment.
 * Answers are those of a moment, if other threads allocate or free. A block that another thread has
 * freed a moment ago may still count as in use.
 * 0 in the hardened library and the teaching heaps.
 * Without tsmalloc: 0.
 * Not for signal handlers. Cost: some loads; outside of small blocks, a lock and a walk through all
 * slabs and large blocks. */
TSMALLOC_FUNCTION_(TSMALLOC_UNREAD_ int, ts_block_of,
                   (const void* address, ts_extent* block, ts_extent* pages));

/* What ts_visit visits. */
enum {
  TSMALLOC_PAGES, /* slabs, large blocks and free pages, as all were at one moment */
  TSMALLOC_BLOCKS /* blocks of slabs, large blocks and free pages */
};

/* Calls `visit` for each piece of the library's memory, by address, until it returns something else
 * than 0, and returns that. 0 after the last; -1 if there is no memory for it, `what` is unknown, or
 * `visit` is null.
 * Of blocks: no other thread may allocate or free meanwhile, as in a child after fork. Blocks that a
 * heap profile holds, one beside each small sample, are visited as in use.
 * `visit` may allocate and free; it must not visit blocks, fork, or jump out. It may be told of
 * blocks that it allocates, and of some that it has freed as in use.
 * The teaching heaps and the hardened library: blocks alone, in any order, and `visit` must not
 * allocate or free.
 * Without tsmalloc: -1.
 * Not for signal handlers. Cost: a walk through the memory's tables; of blocks, through all free
 * lists. A mapping of 48 bytes for each piece of pages. */
TSMALLOC_FUNCTION_(int, ts_visit,
                   (int what, int (*visit)(const ts_extent* extent, void* argument),
                    void* argument));

/* 1 if a library of tsmalloc is in the process, else 0. (Another malloc may precede it there and
 * serve the program; the library then knows nothing of the program's blocks.)
 * Safe in signal handlers. Cost: a load. */
static inline int ts_available(void) TSMALLOC_NOEXCEPT_ {
#ifdef TSMALLOC_REQUIRED
  return 1;
#else
  return ts_version_of_library ? 1 : 0;
#endif
}

#ifndef TSMALLOC_REQUIRED
/* ---- The functions of a program that may be without a library ---- */

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
