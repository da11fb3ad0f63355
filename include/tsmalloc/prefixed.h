/* tsmalloc/prefixed.h: the engine under names of its own, for a program or library that also has
 * another malloc.
 *
 * libtsmalloc-prefixed.a has these functions and those of tsmalloc.h, and nothing called malloc.
 * All are hidden: each program or shared library that links the archive has an engine of its own,
 * which the others do not see and which only knows its own blocks. So use ts_usable_size only for
 * blocks of these functions; ts_trim returns their memory.
 *
 * The other headers use the archive's functions if this header is included first or
 * TSMALLOC_PREFIXED is defined, as the target tsmalloc::prefixed and the pkg-config package
 * tsmalloc-prefixed do. Otherwise memory_resource.hpp would free the archive's blocks with the
 * process's free.
 *
 * A shared library that links the archive must stay loaded, since threads and forks call into it:
 * link it with -Wl,-z,nodelete. The engine reads the same options as the other libraries
 * (TSMALLOC_*). If two engines of a process take a heap profile through TSMALLOC_PROFILE, both
 * write the same file, and the last one remains. To keep both, call ts_profile_write with another
 * file and then ts_option_set("PROFILE", "off"), so that the archive writes none at exit.
 *
 * All functions may be called from any thread, from before the first constructor until after the
 * last destructor. They are not async-signal-safe; handlers of pthread_atfork may call them if
 * registered in main or later. Sizes are in bytes. */
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

/* Allocates at least `size` bytes, aligned to TSMALLOC_MIN_ALIGNMENT. ENOMEM. */
void* ts_malloc(size_t size) TSMALLOC_NOEXCEPT_;
/* Allocates zeroed memory for `count` elements of `size` bytes. ENOMEM, also if the product
 * overflows. */
void* ts_calloc(size_t count, size_t size) TSMALLOC_NOEXCEPT_;
/* Resizes a block, moving it if necessary. Null for `block` allocates; 0 for `size` frees the
 * block and returns null. ENOMEM: the old block is unchanged. */
void* ts_realloc(void* block, size_t size) TSMALLOC_NOEXCEPT_;

/* The same, aligned to `alignment`, a power of two. EINVAL, ENOMEM. */
void* ts_aligned_alloc(size_t alignment, size_t size) TSMALLOC_NOEXCEPT_;
void* ts_realloc_aligned(void* block, size_t alignment, size_t size) TSMALLOC_NOEXCEPT_;

/* Frees a block of any of these functions; null is ignored. Preserves errno. */
void ts_free(void* block) TSMALLOC_NOEXCEPT_;
/* The same for a block that was requested with this size and alignment. */
void ts_free_sized(void* block, size_t size) TSMALLOC_NOEXCEPT_;
void ts_free_aligned_sized(void* block, size_t alignment, size_t size) TSMALLOC_NOEXCEPT_;

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
