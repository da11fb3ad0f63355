//! Functions of the allocator beyond allocation.

use alloc::boxed::Box;
use core::alloc::Layout;
use core::ffi::CStr;
use core::ptr;
use core::time::Duration;

use tsmalloc_sys as sys;

/// Returns the usable bytes of a box's block, at least the size of its value; 0 for a value of size
/// 0.
///
/// It is misuse if the program's global allocator is another one; the library reports that
/// according to `TSMALLOC_ON_MISUSE`.
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

/// Returns the size to request instead of the layout's: the largest that costs no more memory. It
/// is at least the layout's own size.
#[must_use]
pub fn good_size(layout: Layout) -> usize {
    sys::ts_good_size(layout.size(), layout.align()).max(layout.size())
}

/// Returns free memory to the operating system, except `keep_bytes` of it. The result is whether
/// any was returned.
pub fn trim(keep_bytes: usize) -> bool {
    sys::ts_trim(keep_bytes) != 0
}

/// Does a step of background purging, for event loops: idle memory is returned even though the
/// program neither allocates nor frees. Returns the time until the next step is due; `None` if
/// there is nothing to do until the program frees more.
pub fn housekeep() -> Option<Duration> {
    u64::try_from(sys::ts_housekeep()).ok().map(Duration::from_millis)
}

/// Changes an option of the library; the prefix `TSMALLOC_` is optional.
///
/// # Errors
/// A system error number: `ENOENT` for an unknown option, `EINVAL` for an invalid value, `EPERM` if
/// it can only be set at start.
pub fn set_option(name: &CStr, value: &CStr) -> Result<(), i32> {
    // SAFETY: both are zero-terminated.
    match unsafe { sys::ts_option_set(name.as_ptr(), value.as_ptr()) } {
        0 => Ok(()),
        error => Err(error),
    }
}

/// Returns all free memory to the operating system. The result is how many bytes were returned.
pub fn purge() -> usize {
    sys::ts_purge()
}

/// Flushes the calling thread's caches, for pool threads that are about to wait for a long time.
pub fn flush_thread() {
    sys::ts_thread_flush();
}

/// Returns how the library's memory is used.
#[must_use]
pub fn stats() -> sys::ts_statistics {
    let mut statistics = sys::ts_statistics::default();
    // SAFETY: the size is the structure's.
    unsafe { sys::ts_stats(&mut statistics, size_of::<sys::ts_statistics>()) };
    statistics
}

/// The version of the library: 10203 is 1.2.3.
#[must_use]
pub fn version() -> u32 {
    sys::ts_version().unsigned_abs()
}
