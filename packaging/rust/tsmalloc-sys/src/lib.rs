#![doc = include_str!("../README.md")]
#![no_std]

use core::ffi::{c_char, c_int, c_void};

/// An opaque arena; its pointer is never dereferenced.
#[repr(C)]
pub struct Arena {
    _private: [u8; 0],
}

/// The memory of an arena, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaUsage {
    /// The slabs of its small blocks, including free parts.
    pub slab_bytes: usize,
    /// The larger blocks.
    pub large_bytes: usize,
    /// The bytes of both in blocks that were not freed.
    pub used_bytes: usize,
}

/// The alignment of every block of [`ts_malloc`], [`ts_calloc`] and [`ts_realloc`].
pub const MIN_ALIGNMENT: usize = 16;

// With the feature `override` the library has these functions only under their libc names.
unsafe extern "C" {
    /// Returns a block of at least `size` bytes, or null.
    #[cfg_attr(feature = "override", link_name = "malloc")]
    pub fn ts_malloc(size: usize) -> *mut c_void;

    /// Returns a zeroed block of `count * size` bytes, or null.
    #[cfg_attr(feature = "override", link_name = "calloc")]
    pub fn ts_calloc(count: usize, size: usize) -> *mut c_void;

    /// Resizes a block, and may move it. Returns null if there is no memory, and then leaves
    /// `block` unchanged. The result is aligned to [`MIN_ALIGNMENT`], whatever the alignment of
    /// `block`. If `block` is null, allocates; a size of 0 frees.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library.
    #[cfg_attr(feature = "override", link_name = "realloc")]
    pub fn ts_realloc(block: *mut c_void, size: usize) -> *mut c_void;

    /// Returns a block of `size` bytes aligned to `alignment`, a power of two; or null.
    #[cfg_attr(feature = "override", link_name = "aligned_alloc")]
    pub fn ts_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;

    /// Like [`ts_realloc`], but aligned to `alignment`, a power of two.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library.
    #[cfg(not(feature = "override"))]
    pub fn ts_realloc_aligned(block: *mut c_void, alignment: usize, size: usize) -> *mut c_void;

    /// Frees a block; ignores null.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library.
    #[cfg_attr(feature = "override", link_name = "free")]
    pub fn ts_free(block: *mut c_void);

    /// Frees a block that was allocated, or last reallocated, with `size`.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library, and `size` its requested size.
    #[cfg_attr(feature = "override", link_name = "free_sized")]
    pub fn ts_free_sized(block: *mut c_void, size: usize);

    /// Frees a block allocated by [`ts_aligned_alloc`].
    ///
    /// # Safety
    /// `block` is null or a block in use of this library; `alignment` and `size` are as requested.
    #[cfg_attr(feature = "override", link_name = "free_aligned_sized")]
    pub fn ts_free_aligned_sized(block: *mut c_void, alignment: usize, size: usize);

    /// Returns how many bytes of a block may be used, at least the requested size; 0 for null.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library.
    pub fn ts_usable_size(block: *const c_void) -> usize;

    /// Returns the largest size that costs no more memory than `size`; 0 if no such block can
    /// exist. `alignment` is a power of two, or 0 for [`MIN_ALIGNMENT`].
    pub safe fn ts_good_size(size: usize, alignment: usize) -> usize;

    /// Returns free memory to the operating system, except `keep_bytes` of it; 1 if any was
    /// returned.
    pub safe fn ts_trim(keep_bytes: usize) -> c_int;

    /// Does a step of background purging, for event loops. Returns the milliseconds until the next
    /// step is due; -1 if there is nothing to do until the program frees more.
    pub safe fn ts_housekeep() -> c_int;

    /// Changes an option of the library; the prefix `TSMALLOC_` is optional. Returns 0; `ENOENT`
    /// for an unknown option, `EINVAL` for an invalid value, `EPERM` if it can only be set at
    /// start.
    ///
    /// # Safety
    /// Both are zero-terminated strings.
    pub fn ts_option_set(name: *const c_char, value: *const c_char) -> c_int;

    /// Writes the value of an option, zero-terminated. Returns 0; `ENOENT`; or `ERANGE` if it needs
    /// more than `size` bytes.
    ///
    /// # Safety
    /// `name` is a zero-terminated string, and `value` has room for `size` bytes.
    pub fn ts_option_get(name: *const c_char, value: *mut c_char, size: usize) -> c_int;

    /// Calls `handler` during a later `malloc` with an event (1: the soft limit was passed, 2: the
    /// hard limit refused a request) and the bytes in use; `None` removes it. Returns 0 or
    /// `ENOTSUP`.
    pub safe fn ts_on_event(handler: Option<extern "C" fn(event: c_int, bytes: usize)>) -> c_int;

    /// Starts sampling for the heap profile, about once per `interval` allocated bytes; an interval
    /// of 0 means 512 KiB. Returns 0, or `EINVAL`, `ENOMEM`, `ENOTSUP`.
    pub safe fn ts_profile_start(interval: usize) -> c_int;
    /// Stops sampling. Returns 0 or `ENOTSUP`.
    pub safe fn ts_profile_stop() -> c_int;
    /// Writes the heap profile (0: current, 1: at the peak) to an open file. Returns 0 or an error
    /// number.
    pub safe fn ts_profile_write(descriptor: c_int, what: c_int) -> c_int;

    /// Creates an empty arena; returns null if there is no memory. Arena functions that return a
    /// `c_int` return 0 or an error number: `EINVAL` for an invalid or destroyed arena; `EBUSY`
    /// while another thread uses it.
    pub safe fn ts_arena_create() -> *mut Arena;

    /// Frees all blocks of the arena. Returns `EBUSY` while any thread is in its scope.
    ///
    /// # Safety
    /// No block of the arena is used or freed afterwards.
    pub fn ts_arena_reset(arena: *mut Arena) -> c_int;

    /// Frees all blocks of the arena, and the arena itself.
    ///
    /// # Safety
    /// As [`ts_arena_reset`].
    pub fn ts_arena_destroy(arena: *mut Arena) -> c_int;

    /// Returns a block of the arena, which any thread may free like any other block; null and
    /// `errno` on error.
    pub safe fn ts_arena_malloc(arena: *mut Arena, size: usize) -> *mut c_void;

    /// The same, aligned to `alignment`, a power of two.
    pub safe fn ts_arena_aligned_alloc(
        arena: *mut Arena,
        alignment: usize,
        size: usize,
    ) -> *mut c_void;

    /// Measures the arena.
    ///
    /// # Safety
    /// `usage` is writable.
    pub fn ts_arena_stats(arena: *mut Arena, usage: *mut ArenaUsage) -> c_int;

    /// Makes the calling thread allocate in the arena, or in its own heap if `arena` is null.
    /// Scopes nest.
    pub safe fn ts_scope_enter(arena: *mut Arena) -> c_int;

    /// Leaves the innermost scope; returns `EINVAL` if the thread is in none.
    pub safe fn ts_scope_leave() -> c_int;

    /// Returns all free memory to the operating system; the result is how many bytes were returned.
    pub safe fn ts_purge() -> usize;

    /// Flushes the calling thread's caches, for pool threads that are about to wait for a long
    /// time.
    pub safe fn ts_thread_flush();

    /// Resizes a block in place to at least `size` bytes and returns 1, or changes nothing and
    /// returns 0.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library.
    pub fn ts_expand(block: *mut c_void, size: usize) -> c_int;

    /// Fills the first `size` bytes of `*statistics`; returns 1.
    ///
    /// # Safety
    /// `statistics` is writable for `size` bytes.
    pub fn ts_stats(statistics: *mut ts_statistics, size: usize) -> c_int;

    /// The library's version: 10203 is 1.2.3.
    pub safe fn ts_version() -> c_int;
}

/// The library's memory by use, in bytes, and three other numbers (tsmalloc/tsmalloc.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, non_camel_case_types)]
pub struct ts_statistics {
    pub mapped_bytes: usize,
    pub small_bytes: usize,
    pub large_bytes: usize,
    pub bin_bytes: usize,
    pub waiting_bytes: usize,
    pub slab_bytes: usize,
    pub ended_bytes: usize,
    pub page_bytes: usize,
    pub returned_bytes: usize,
    pub table_bytes: usize,
    pub heaps: usize,
    pub ended_heaps: usize,
    pub growths: usize,
    pub purged_bytes: usize,
    pub limit_bytes: usize,
    pub hard_limit_bytes: usize,
}

/// Like [`ts_realloc`], but aligned to `alignment`, a power of two. libc has no such function.
///
/// # Safety
/// `block` is null or a block in use of this library.
#[cfg(feature = "override")]
pub unsafe fn ts_realloc_aligned(block: *mut c_void, alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: the block is in use, and the copied bytes are within both blocks.
    unsafe {
        if size == 0 {
            ts_free(block);
            return core::ptr::null_mut();
        }
        let moved = ts_aligned_alloc(alignment, size);
        if !moved.is_null() && !block.is_null() {
            moved.copy_from_nonoverlapping(block, ts_usable_size(block).min(size));
            ts_free(block);
        }
        moved
    }
}
