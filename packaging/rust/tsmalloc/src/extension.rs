//! What a program can ask of the allocator.

use alloc::boxed::Box;
use core::alloc::Layout;
use core::ffi::CStr;
use core::ptr;
use core::time::Duration;

use tsmalloc_sys as sys;

/// The bytes of a box's block, at least as many as its value has; 0 for a value without bytes.
///
/// A box of a program whose global allocator is another one is misuse, which the library reports
/// as `TSMALLOC_ON_MISUSE` says.
#[must_use]
#[expect(clippy::borrowed_box, reason = "a block begins at a box, and not at any reference")]
pub fn usable_size<T: ?Sized>(boxed: &Box<T>) -> usize {
    let value: &T = boxed;
    if size_of_val(value) == 0 {
        return 0;
    }
    // SAFETY: the box keeps its block in use.
    unsafe { sys::ts_usable_size(ptr::from_ref(value).cast()) }
}

/// The most bytes that need no more memory than `layout`: the size to ask for instead. It is never
/// less than the layout's own.
#[must_use]
pub fn good_size(layout: Layout) -> usize {
    sys::ts_good_size(layout.size(), layout.align()).max(layout.size())
}

/// Gives free memory back to the operating system, all but `keep_bytes` of it. Whether any went
/// back.
pub fn trim(keep_bytes: usize) -> bool {
    sys::ts_trim(keep_bytes) != 0
}

/// A step of housekeeping, for a program that waits for events: memory that stays idle goes back
/// although the program neither allocates nor frees. Returns in how long the next step is due;
/// `None` if none is until the program frees more.
pub fn housekeep() -> Option<Duration> {
    u64::try_from(sys::ts_housekeep()).ok().map(Duration::from_millis)
}

/// Changes an option of the library, by its name with or without `TSMALLOC_`.
///
/// # Errors
/// The number of a system error: `ENOENT` without such an option, `EINVAL` of another value, `EPERM`
/// of an option for the start alone.
pub fn set_option(name: &CStr, value: &CStr) -> Result<(), i32> {
    // SAFETY: both end with a zero.
    match unsafe { sys::ts_option_set(name.as_ptr(), value.as_ptr()) } {
        0 => Ok(()),
        error => Err(error),
    }
}

/// Gives all free memory back to the operating system. How many bytes went back.
pub fn purge() -> usize {
    sys::ts_purge()
}

/// Gives up what the calling thread keeps aside: for a thread of a pool, before it waits for long.
pub fn flush_thread() {
    sys::ts_thread_flush();
}

/// Where the memory of the library is.
#[must_use]
pub fn stats() -> sys::ts_statistics {
    let mut statistics = sys::ts_statistics::default();
    // SAFETY: the size is that of the structure.
    unsafe { sys::ts_stats(&mut statistics, size_of::<sys::ts_statistics>()) };
    statistics
}

/// The version of the library: 10203 is 1.2.3.
#[must_use]
pub fn version() -> u32 {
    sys::ts_version().unsigned_abs()
}
