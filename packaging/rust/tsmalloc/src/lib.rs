#![doc = include_str!("../README.md")]
#![no_std]

#[cfg(feature = "extension")]
extern crate alloc;

use core::alloc::{GlobalAlloc, Layout};

use tsmalloc_sys as sys;

#[cfg(feature = "extension")]
mod extension;
#[cfg(feature = "extension")]
pub use extension::{
    flush_thread, good_size, housekeep, purge, set_option, stats, trim, usable_size, version,
};
#[cfg(feature = "extension")]
pub use tsmalloc_sys::ts_statistics as Statistics;

/// The allocator, for use as a program's `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct TsMalloc;

// SAFETY: the library's blocks have the size and the alignment of the request, do not overlap, and
// stay until they are freed; it never unwinds. Callers pass layouts of a size other than 0.
unsafe impl GlobalAlloc for TsMalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size will do, and a layout's alignment is a power of two.
        unsafe {
            if layout.align() <= sys::MIN_ALIGNMENT {
                sys::ts_malloc(layout.size()).cast()
            } else {
                sys::ts_aligned_alloc(layout.align(), layout.size()).cast()
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= sys::MIN_ALIGNMENT {
            // SAFETY: any size will do.
            return unsafe { sys::ts_calloc(1, layout.size()).cast() };
        }
        // SAFETY: the caller upholds the contract of `alloc`; a block has its layout's size.
        unsafe {
            let block = self.alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            block
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is from `alloc` or `realloc`, with the layout of that request.
        unsafe {
            if layout.align() <= sys::MIN_ALIGNMENT {
                sys::ts_free_sized(block.cast(), layout.size());
            } else {
                sys::ts_free_aligned_sized(block.cast(), layout.align(), layout.size());
            }
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the block is in use, and the new size is not 0.
        unsafe {
            if layout.align() <= sys::MIN_ALIGNMENT {
                sys::ts_realloc(block.cast(), new_size).cast()
            } else {
                sys::ts_realloc_aligned(block.cast(), layout.align(), new_size).cast()
            }
        }
    }
}
