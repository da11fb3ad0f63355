/* tsmalloc/arena.h: arenas, whose blocks can be freed all at once, and scopes, in which code that
 * knows nothing of them allocates from one.
 *
 *     ts_arena* const arena = ts_arena_create();
 *     if (ts_scope_enter(arena) == 0) {
 *       parse(text);                // its malloc and new allocate in the arena
 *       ts_scope_leave();
 *     }
 *     ts_arena_destroy(arena);      // frees all of it
 *
 * An arena is a heap as a thread has one, and as fast. Its blocks are blocks of malloc: any thread
 * frees them by free or delete, also outside of a scope, as long as the arena lives; those that
 * nobody frees go with ts_arena_reset or ts_arena_destroy. A block that is used or freed later is
 * misuse, as any other stray pointer.
 *
 * One thread at a time uses an arena: is in its scope, or calls one of its functions. To another
 * thread, all but free answer EBUSY, and change nothing.
 *
 * The code in a scope must not keep what it allocates there beyond the arena's end. Caches that
 * libraries fill on first use are an example: fill them before, or in the scope of NULL. The C
 * library, too, allocates and keeps:
 *   - the buffer of a stream, at the first print; the table of loaded libraries (dlopen);
 *   - memory of a thread for the next one (pthread_create, the end of a thread);
 *   - the environment (setenv, putenv), the locale (setlocale), the time zone (tzset, localtime);
 *   - what look-ups of names read (getaddrinfo, getpwnam).
 * Do these outside of scopes.
 *
 * A scope belongs to its thread; a thread that it starts is in none. A thread that ends in a scope
 * leaves it. After a fork the child has the arenas as they were, and is in the scopes of the thread
 * that forked; an arena whose user the fork cut off in the middle of a change stays EBUSY.
 *
 * An arena is for tens of KiB and more, not for each small connection. It keeps 5,248 bytes of tables
 * beside its blocks. Each size class that is used in it takes a slab of 16 KiB of addresses or more.
 * Of a slab, those OS pages are resident that were touched; TSMALLOC_HARD_LIMIT counts all of it.
 *
 * A program with prefixed.h has the arenas of its archive if it includes that header first, or is
 * compiled with -DTSMALLOC_PREFIXED.
 *
 * Only the engine has arenas (libtsmalloc.so, libtsmalloc.a, tsmalloc.o, and libtsmalloc-prefixed.a
 * for the functions of prefixed.h). In the hardened library, in the teaching heaps and without
 * tsmalloc, functions that return a pointer return null, with ENOTSUP in errno, and the others
 * return ENOTSUP.
 *
 * Functions that return an int return 0 or an error number, and leave errno alone. None may be
 * called in signal handlers. Sizes are bytes. See tsmalloc.h for TSMALLOC_REQUIRED. */
#ifndef TSMALLOC_ARENA_H
#define TSMALLOC_ARENA_H

#include <errno.h>

#include "tsmalloc.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A handle, never to be dereferenced. That of a destroyed arena is known as such: EINVAL. */
typedef struct ts_arena ts_arena;

struct ts_arena_usage {
  size_t slab_bytes; /* what its blocks up to TSMALLOC_MAX_SMALL_SIZE lie in, free parts included */
  size_t large_bytes; /* its larger blocks */
  size_t used_bytes;  /* of both, in blocks that were not freed */
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

/* An arena without a block; null and ENOMEM without memory. 450,000 can exist at a time.
 * The tables of a destroyed arena are kept for the next one. */
TSMALLOC_FUNCTION_(ts_arena*, ts_arena_create, (void));

/* Frees all blocks of the arena, and with ts_arena_destroy the arena itself. EBUSY while a thread
 * uses it, also the calling one; EINVAL if it is no arena, or not any more. The blocks are not
 * touched, so the cost is that of giving their pages back. */
TSMALLOC_FUNCTION_(int, ts_arena_reset, (ts_arena * arena));
TSMALLOC_FUNCTION_(int, ts_arena_destroy, (ts_arena * arena));

/* As malloc and aligned_alloc in the arena's scope, whatever scope the thread is in. (So would be
 * realloc: enter the scope for it.) Null and errno: EBUSY, EINVAL as above; ENOMEM; EINVAL for what
 * is no alignment. */
TSMALLOC_FUNCTION_(void*, ts_arena_malloc, (ts_arena * arena, size_t size));
TSMALLOC_FUNCTION_(void*, ts_arena_aligned_alloc,
                   (ts_arena * arena, size_t alignment, size_t size));

/* Measures the arena. EBUSY, EINVAL. Cost: a look at each slab and each larger block. */
TSMALLOC_FUNCTION_(int, ts_arena_stats, (ts_arena * arena, struct ts_arena_usage* usage));

/* From now on the calling thread allocates in the arena; or again in its own heap, if `arena` is
 * NULL. Scopes nest, also in the scope of the same arena. A realloc that moves a block puts it where
 * malloc would; one in place leaves it the arena's, also outside of the scope. EBUSY: another thread
 * uses the arena. EINVAL: no arena, or not any more. ENOMEM: the thread is in its last destructors, or
 * there is no memory. Cost: some nanoseconds. */
TSMALLOC_FUNCTION_(int, ts_scope_enter, (ts_arena * arena));

/* Leaves the innermost scope. EINVAL: the thread is in none. */
TSMALLOC_FUNCTION_(int, ts_scope_leave, (void));

#ifndef TSMALLOC_REQUIRED
/* ---- The functions of a program that may be without a library ---- */

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
