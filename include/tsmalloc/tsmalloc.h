/* tsmalloc/tsmalloc.h: what a program can ask of tsmalloc beside the malloc family itself.
 *
 * Every drop-in library has these functions: libtsmalloc.so, libtsmalloc-secure.so, the teaching
 * heaps, libtsmalloc.a and tsmalloc.o. A program that includes this header needs none of them: it
 * calls the library that is in the process, preloaded or linked, and ts_available says whether one
 * is. Without one, each function does what its comment says under "without tsmalloc".
 *
 * Two limits. A program compiled without -fPIE and -fPIC learns of a library when it is linked, so
 * under LD_PRELOAD its calls are those without tsmalloc. And a linker takes no library for these
 * functions alone, only for malloc and the like. Both end where the program defines
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

/* The engine's largest small block. A larger one consists of whole pages of 16 KiB, which serve
 * blocks of every size as soon as it is free. A property of this version of the engine. */
#define TSMALLOC_MAX_SMALL_SIZE 32768

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

#if defined(TSMALLOC_PREFIXED) && !defined(TSMALLOC_REQUIRED)
#define TSMALLOC_REQUIRED
#endif
#ifdef TSMALLOC_REQUIRED
#define TSMALLOC_FUNCTION_(result, name, parameters) result name parameters TSMALLOC_NOEXCEPT_
#else
/* Two functions: name_of_library is the library's, null where there is none, and bears the plain
 * name in assembly; the other, which the program calls, is defined at the end of this header. */
#define TSMALLOC_FUNCTION_(result, name, parameters)                           \
  extern result name##_of_library parameters TSMALLOC_NOEXCEPT_ __asm__(#name) \
      __attribute__((weak));                                                   \
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
TSMALLOC_FUNCTION_(size_t, ts_usable_size, (const void* block));

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
 * by one thread at a time. It may call any function of this library, and has to return. Compilers take
 * it that malloc changes no variable of the program: what it writes is volatile or atomic.
 * 0, or ENOTSUP in the hardened library and in the teaching heaps, which have no limits.
 * Without tsmalloc: ENOSYS.
 * Safe in signal handlers. Cost: a store. */
TSMALLOC_FUNCTION_(int, ts_on_event, (void (*handler)(int event, size_t bytes)));

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

extern size_t ts_usable_size_of_libc(const void* block) TSMALLOC_NOEXCEPT_
    __asm__("malloc_usable_size");
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
#endif

#pragma GCC visibility pop
#undef TSMALLOC_FUNCTION_
#ifdef __cplusplus
}
#endif

#endif
