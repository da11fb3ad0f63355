/* tsmalloc/arena.h: arenas, whose blocks can be freed all at once, and scopes, in which code that
 * knows nothing of arenas allocates from one.
 *
 *     ts_arena* const arena = ts_arena_create();
 *     if (ts_scope_enter(arena) == 0) {
 *       parse(text);                // its malloc and new allocate in the arena
 *       ts_scope_leave();
 *     }
 *     ts_arena_destroy(arena);      // frees everything
 *
 * An arena is a heap like that of a thread, and as fast. Its blocks are ordinary blocks of malloc:
 * any thread may free or delete them, also outside a scope, as long as the arena lives;
 * ts_arena_reset and ts_arena_destroy free any that remain. Using or freeing a block after that is
 * misuse, as with any dangling pointer.
 *
 * Only one thread at a time may use an arena, that is, be in its scope or call one of its
 * functions. For another thread, everything but free fails with EBUSY and changes nothing.
 *
 * Code in a scope must not keep what it allocates there beyond the life of the arena. An example
 * are caches that libraries fill on first use: fill them before, or in the scope of NULL. The C
 * library, too, allocates and keeps:
 *   - the buffer of a stream, at the first print; the table of loaded libraries (dlopen);
 *   - memory of a thread for the next one (pthread_create, the end of a thread);
 *   - the environment (setenv, putenv), the locale (setlocale), the time zone (tzset, localtime);
 *   - data for name look-ups (getaddrinfo, getpwnam).
 * Do these outside scopes.
 *
 * A scope belongs to its thread; a thread started there is in no scope. A thread that ends in a
 * scope leaves it. After a fork the child has the arenas as they were, and is in the scopes of the
 * thread that forked; an arena that another thread was changing at the time of the fork stays
 * EBUSY.
 *
 * Arenas are meant for tens of KiB and more, not for each small connection. Each keeps 5,248 bytes
 * of tables besides its blocks, and each size class in use takes a slab of at least 16 KiB of
 * address space. Only the touched OS pages of a slab are resident, but TSMALLOC_HARD_LIMIT counts
 * all of it.
 *
 * A program that uses prefixed.h gets the arenas of its archive if it includes that header first
 * or is compiled with -DTSMALLOC_PREFIXED.
 *
 * Only the engine has arenas (libtsmalloc.so, libtsmalloc.a, tsmalloc.o, and
 * libtsmalloc-prefixed.a for the functions of prefixed.h). In the hardened library, in the
 * teaching heaps and without tsmalloc, functions that return a pointer return null with errno set
 * to ENOTSUP, and the others return ENOTSUP.
 *
 * Functions that return an int return 0 or an error number and leave errno alone. None is
 * async-signal-safe. Sizes are in bytes. See tsmalloc.h for TSMALLOC_REQUIRED. */
#ifndef TSMALLOC_ARENA_H
#define TSMALLOC_ARENA_H

#include <errno.h>

#include "tsmalloc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A handle, never to be dereferenced. Handles of destroyed arenas are recognised: EINVAL. */
typedef struct ts_arena ts_arena;

/* The memory of an arena, in bytes. */
struct ts_arena_usage {
  size_t slab_bytes;  /* slabs of blocks up to TSMALLOC_MAX_SMALL_SIZE, free parts included */
  size_t large_bytes; /* its larger blocks */
  size_t used_bytes;  /* part of both: in blocks not yet freed */
};

#ifdef TSMALLOC_REQUIRED
#define TSMALLOC_FUNCTION_(result, name, parameters) result name parameters TSMALLOC_NOEXCEPT_
#else
#define TSMALLOC_FUNCTION_(result, name, parameters)                           \
  extern result name##_of_library parameters TSMALLOC_NOEXCEPT_ __asm__(#name) \
      __attribute__((weak TSMALLOC_NO_PLT_));                                  \
  static inline result name parameters TSMALLOC_NOEXCEPT_ __asm__("tsmalloc_inline_" #name)
#endif
#ifdef TSMALLOC_PREFIXED
#pragma GCC visibility push(hidden)
#else
#pragma GCC visibility push(default)
#endif

/* Creates an empty arena; null with ENOMEM if memory runs out. Up to 450,000 can exist at a time.
 * The tables of a destroyed arena are reused for the next one. */
TSMALLOC_FUNCTION_(ts_arena*, ts_arena_create, (void));

/* ts_arena_reset frees all blocks of the arena; ts_arena_destroy also frees the arena. EBUSY while
 * any thread uses it, the calling one included; EINVAL if it is not an arena, or has been
 * destroyed. The blocks are not touched, so the cost is that of returning their pages. */
TSMALLOC_FUNCTION_(int, ts_arena_reset, (ts_arena * arena));
TSMALLOC_FUNCTION_(int, ts_arena_destroy, (ts_arena * arena));

/* Like malloc and aligned_alloc in the arena's scope, whatever scope the thread is in. (For
 * realloc, enter the scope.) Null with errno EBUSY or EINVAL as above, EINVAL for an invalid
 * alignment, or ENOMEM. */
TSMALLOC_FUNCTION_(void*, ts_arena_malloc, (ts_arena * arena, size_t size));
TSMALLOC_FUNCTION_(void*, ts_arena_aligned_alloc,
                   (ts_arena * arena, size_t alignment, size_t size));

/* Measures the arena. EBUSY, EINVAL. Cost: reading each slab's and each larger block's figures. */
TSMALLOC_FUNCTION_(int, ts_arena_stats, (ts_arena * arena, struct ts_arena_usage* usage));

/* Makes the calling thread allocate in the arena, or in its own heap again if `arena` is NULL.
 * Scopes nest, also within the scope of the same arena. A realloc that moves a block puts it where
 * malloc would; in place, it stays the arena's, also outside the scope. EBUSY: another thread uses
 * the arena. EINVAL: not an arena, or destroyed. ENOMEM: out of memory, or the thread is running
 * its last destructors. Cost: a few nanoseconds. */
TSMALLOC_FUNCTION_(int, ts_scope_enter, (ts_arena * arena));

/* Leaves the innermost scope. EINVAL: the thread is in none. */
TSMALLOC_FUNCTION_(int, ts_scope_leave, (void));

#ifndef TSMALLOC_REQUIRED
/* ---- For programs that may run without a library ---- */

static inline ts_arena* ts_arena_create(void) TSMALLOC_NOEXCEPT_ {
  if (ts_arena_create_of_library) return ts_arena_create_of_library();
  errno = ENOTSUP;
  return NULL;
}

static inline int ts_arena_reset(ts_arena* arena) TSMALLOC_NOEXCEPT_ {
  return ts_arena_reset_of_library ? ts_arena_reset_of_library(arena) : ENOTSUP;
}

static inline int ts_arena_destroy(ts_arena* arena) TSMALLOC_NOEXCEPT_ {
  return ts_arena_destroy_of_library ? ts_arena_destroy_of_library(arena) : ENOTSUP;
}

static inline void* ts_arena_malloc(ts_arena* arena, size_t size) TSMALLOC_NOEXCEPT_ {
  if (ts_arena_malloc_of_library) return ts_arena_malloc_of_library(arena, size);
  errno = ENOTSUP;
  return NULL;
}

static inline void* ts_arena_aligned_alloc(ts_arena* arena, size_t alignment,
                                           size_t size) TSMALLOC_NOEXCEPT_ {
  if (ts_arena_aligned_alloc_of_library)
    return ts_arena_aligned_alloc_of_library(arena, alignment, size);
  errno = ENOTSUP;
  return NULL;
}

static inline int ts_arena_stats(ts_arena* arena, struct ts_arena_usage* usage) TSMALLOC_NOEXCEPT_ {
  return ts_arena_stats_of_library ? ts_arena_stats_of_library(arena, usage) : ENOTSUP;
}

static inline int ts_scope_enter(ts_arena* arena) TSMALLOC_NOEXCEPT_ {
  return ts_scope_enter_of_library ? ts_scope_enter_of_library(arena) : ENOTSUP;
}

static inline int ts_scope_leave(void) TSMALLOC_NOEXCEPT_ {
  return ts_scope_leave_of_library ? ts_scope_leave_of_library() : ENOTSUP;
}
#endif

#pragma GCC visibility pop
#undef TSMALLOC_FUNCTION_
#ifdef __cplusplus
}
#endif

#endif
