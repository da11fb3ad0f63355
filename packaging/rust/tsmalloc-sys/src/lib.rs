#![doc = include_str!("../README.md")]
#![no_std]

use core::ffi::{c_char, c_int, c_void};

/// An arena, behind a handle that is never dereferenced.
#[repr(C)]
pub struct Arena {
    _private: [u8; 0],
}

/// What an arena holds, in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ArenaUsage {
    /// What its small blocks lie in, free parts included.
    pub slab_bytes: usize,
    /// Its larger blocks.
    pub large_bytes: usize,
    /// Of both, in blocks that were not freed.
    pub used_bytes: usize,
}

/// The alignment of every block of [`ts_malloc`], [`ts_calloc`] and [`ts_realloc`].
pub const MIN_ALIGNMENT: usize = 16;

// With the feature `override` the library has these functions under the names of libc alone.
unsafe extern "C" {
    /// A block of at least `size` bytes, or null.
    #[cfg_attr(feature = "override", link_name = "malloc")]
    pub fn ts_malloc(size: usize) -> *mut c_void;

    /// A block of `count * size` bytes that are zero, or null.
    #[cfg_attr(feature = "override", link_name = "calloc")]
    pub fn ts_calloc(count: usize, size: usize) -> *mut c_void;

    /// The block with another size, perhaps elsewhere; null if there is no memory, and then `block`
    /// is as it was. The alignment is [`MIN_ALIGNMENT`], whatever that of `block` was. Null is
    /// allocated, and a size of 0 frees.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library.
    #[cfg_attr(feature = "override", link_name = "realloc")]
    pub fn ts_realloc(block: *mut c_void, size: usize) -> *mut c_void;

    /// A block of `size` bytes at a multiple of `alignment`, a power of two; or null.
    #[cfg_attr(feature = "override", link_name = "aligned_alloc")]
    pub fn ts_aligned_alloc(alignment: usize, size: usize) -> *mut c_void;

    /// [`ts_realloc`] to a multiple of `alignment`, a power of two.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library.
    #[cfg(not(feature = "override"))]
    pub fn ts_realloc_aligned(block: *mut c_void, alignment: usize, size: usize) -> *mut c_void;

    /// Frees a block; null is left alone.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library.
    #[cfg_attr(feature = "override", link_name = "free")]
    pub fn ts_free(block: *mut c_void);

    /// Frees a block that was allocated, or last reallocated, with `size`.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library, and `size` that of its request.
    #[cfg_attr(feature = "override", link_name = "free_sized")]
    pub fn ts_free_sized(block: *mut c_void, size: usize);

    /// Frees a block of [`ts_aligned_alloc`].
    ///
    /// # Safety
    /// `block` is null or a block in use of this library; `alignment` and `size` are those of its
    /// request.
    #[cfg_attr(feature = "override", link_name = "free_aligned_sized")]
    pub fn ts_free_aligned_sized(block: *mut c_void, alignment: usize, size: usize);

    /// The bytes of a block that may be used, at least as many as were asked for; 0 for null.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library.
    pub fn ts_usable_size(block: *const c_void) -> usize;

    /// The most bytes that need no more memory than `size`; 0 if no such block can exist.
    /// `alignment` is a power of two, or 0 for [`MIN_ALIGNMENT`].
    pub safe fn ts_good_size(size: usize, alignment: usize) -> usize;

    /// Gives free memory back to the operating system, all but `keep_bytes` of it; 1 if any went
    /// back.
    pub safe fn ts_trim(keep_bytes: usize) -> c_int;

    /// A step of housekeeping, for a program that waits for events. The next one is due in so many
    /// milliseconds; -1 if none is until the program frees more.
    pub safe fn ts_housekeep() -> c_int;

    /// Changes an option of the library, by its name with or without `TSMALLOC_`. 0, or `ENOENT`,
    /// `EINVAL` of another value, `EPERM` of an option for the start alone.
    ///
    /// # Safety
    /// Both are texts that end with a zero.
    pub fn ts_option_set(name: *const c_char, value: *const c_char) -> c_int;

    /// Writes the value of an option as a text that ends with a zero. 0, or `ENOENT`, or `ERANGE`
    /// if it needs more than `size` bytes.
    ///
    /// # Safety
    /// `name` is a text that ends with a zero, and `value` has room for `size` bytes.
    pub fn ts_option_get(name: *const c_char, value: *mut c_char, size: usize) -> c_int;

    /// Calls `handler` with an event (1: the soft limit is passed, 2: the hard one refuses) and the
    /// bytes in use, in the course of a later `malloc`; `None` for no handler. 0, or `ENOTSUP`.
    pub safe fn ts_on_event(handler: Option<extern "C" fn(event: c_int, bytes: usize)>) -> c_int;

    /// Samples one in about `interval` bytes that are allocated, from now on, for the heap profile; 0
    /// stands for 512 KiB. 0, or `EINVAL`, `ENOMEM`, `ENOTSUP`.
    pub safe fn ts_profile_start(interval: usize) -> c_int;
    /// Takes no more samples. 0, or `ENOTSUP`.
    pub safe fn ts_profile_stop() -> c_int;
    /// Writes the heap profile (0: as it is now, 1: as it was at its peak) to an open file. 0, or an
    /// error number.
    pub safe fn ts_profile_write(descriptor: c_int, what: c_int) -> c_int;

    /// An arena without a block; null without memory. Of the functions of arenas, those that return
    /// a `c_int` return 0 or an error number: `EINVAL` for what is no arena, or not any more;
    /// `EBUSY` while another thread uses it.
    pub safe fn ts_arena_create() -> *mut Arena;

    /// Frees all blocks of the arena. `EBUSY` while any thread is in its scope.
    ///
    /// # Safety
    /// No block of the arena is used or freed afterwards.
    pub fn ts_arena_reset(arena: *mut Arena) -> c_int;

    /// The same, and frees the arena.
    ///
    /// # Safety
    /// As [`ts_arena_reset`].
    pub fn ts_arena_destroy(arena: *mut Arena) -> c_int;

    /// A block of the arena, which any thread frees as any other block; null and `errno`.
    pub safe fn ts_arena_malloc(arena: *mut Arena, size: usize) -> *mut c_void;

    /// The same at a multiple of `alignment`, a power of two.
    pub safe fn ts_arena_aligned_alloc(
        arena: *mut Arena,
        alignment: usize,
        size: usize,
    ) -> *mut c_void;

    /// Measures the arena.
    ///
    /// # Safety
    /// `usage` can be written to.
    pub fn ts_arena_stats(arena: *mut Arena, usage: *mut ArenaUsage) -> c_int;

    /// From now on the calling thread allocates in the arena; or again in its own heap, if `arena`
    /// is null. Scopes nest.
    pub safe fn ts_scope_enter(arena: *mut Arena) -> c_int;

    /// Leaves the innermost scope; `EINVAL` if the thread is in none.
    pub safe fn ts_scope_leave() -> c_int;

    /// Gives all free memory back to the operating system. How many bytes went back.
    pub safe fn ts_purge() -> usize;

    /// Gives up what the calling thread keeps aside: before it waits for long, as in a pool.
    pub safe fn ts_thread_flush();

    /// Makes a block hold at least `size` bytes without moving it: 1; or changes nothing: 0.
    ///
    /// # Safety
    /// `block` is null or a block in use of this library.
    pub fn ts_expand(block: *mut c_void, size: usize) -> c_int;

    /// Fills the first `size` bytes of `*statistics`; 1.
    ///
    /// # Safety
    /// `statistics` may be written to for `size` bytes.
    pub fn ts_stats(statistics: *mut ts_statistics, size: usize) -> c_int;

    /// The library's version: 10203 is 1.2.3.
    pub safe fn ts_version() -> c_int;
}

/// Where the library's memory is, in bytes, and three numbers (tsmalloc/tsmalloc.h).
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

/// [`ts_realloc`] to a multiple of `alignment`, a power of two. libc has no name for it.
///
/// # Safety
/// `block` is null or a block in use of this library.
#[cfg(feature = "override")]
pub unsafe fn ts_realloc_aligned(block: *mut c_void, alignment: usize, size: usize) -> *mut c_void {
    // SAFETY: the block is in use, and what is copied is within both blocks.
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
