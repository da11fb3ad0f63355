/* tsmalloc/prefixed.h: the engine under names of its own, for a program or a library that has
 * another malloc as well.
 *
 * libtsmalloc-prefixed.a has these functions, those of tsmalloc.h, and nothing called malloc. They
 * are hidden: each program or shared library that links the archive has an engine of its own, which
 * no other sees, and which knows its own blocks alone. So ts_usable_size is asked of blocks of
 * these functions here, and ts_trim gives back their memory.
 *
 * The other headers take the same functions if this one is included first, or if TSMALLOC_PREFIXED is
 * defined. The target tsmalloc::prefixed and the package tsmalloc-prefixed of pkg-config define it.
 * Without it, memory_resource.hpp would free the archive's blocks by the process's free.
 *
 * A shared library that links the archive has to stay loaded, since threads and forks call it: link
 * it with -Wl,-z,nodelete. The engine reads the same options as the other libraries (TSMALLOC_*).
 * Where two engines of a process take a heap profile by TSMALLOC_PROFILE, both write the same file, and
 * the last one stays. For both, call ts_profile_write with another file, and then
 * ts_option_set("PROFILE", "off"): the archive writes none at exit.
 *
 * All functions may be called from any thread, and at any time from before the first constructor to
 * the last destructor, but not from signal handlers; from handlers of pthread_atfork if those are
 * registered in main or later. Sizes are bytes. */
#ifndef TSMALLOC_PREFIXED_H
#define TSMALLOC_PREFIXED_H

#if defined(TSMALLOC_TSMALLOC_H) && !defined(TSMALLOC_PREFIXED)
#error "include <tsmalloc/prefixed.h> first, or compile with -DTSMALLOC_PREFIXED"
#endif
#ifndef TSMALLOC_PREFIXED
#define TSMALLOC_PREFIXED
#endif
#include "tsmalloc.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(hidden)

/* A block of at least `size` bytes, aligned to TSMALLOC_MIN_ALIGNMENT. ENOMEM. */
void* ts_malloc(size_t size) TSMALLOC_NOEXCEPT_;
/* A zeroed block for `count` elements of `size` bytes. ENOMEM, also when the product overflows. */
void* ts_calloc(size_t count, size_t size) TSMALLOC_NOEXCEPT_;
/* The block with its contents, `size` bytes long, moved if need be. Null for `block` allocates; 0
 * for `size` frees, and returns null. ENOMEM: the old block is unchanged. */
void* ts_realloc(void* block, size_t size) TSMALLOC_NOEXCEPT_;

/* The same, aligned to `alignment`, a power of two. EINVAL, ENOMEM. */
void* ts_aligned_alloc(size_t alignment, size_t size) TSMALLOC_NOEXCEPT_;
void* ts_realloc_aligned(void* block, size_t alignment, size_t size) TSMALLOC_NOEXCEPT_;

/* Takes back a block of any of these; null is ignored. Preserves errno. */
void ts_free(void* block) TSMALLOC_NOEXCEPT_;
/* The same, of a block that was asked for with this size and alignment. */
void ts_free_sized(void* block, size_t size) TSMALLOC_NOEXCEPT_;
void ts_free_aligned_sized(void* block, size_t alignment, size_t size) TSMALLOC_NOEXCEPT_;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
