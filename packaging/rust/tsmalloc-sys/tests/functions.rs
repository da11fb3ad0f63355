//! The functions themselves, in a program whose own allocator is libc's.
#![allow(missing_docs)]

use std::ptr;
use std::slice;

use tsmalloc_sys::*;

#[test]
fn each_function_does_its_part() {
    // SAFETY: blocks are used within their sizes, and freed once, as they were asked for.
    unsafe {
        let block = ts_malloc(100);
        assert_eq!(block.addr() % MIN_ALIGNMENT, 0);
        assert!(ts_usable_size(block) >= 100);
        block.cast::<u8>().write_bytes(7, 100);
        let block = ts_realloc(block, 10_000);
        assert!(slice::from_raw_parts(block.cast::<u8>(), 100).iter().all(|&byte| byte == 7));
        ts_free_sized(block, 10_000);

        let zeroed = ts_calloc(300, 3);
        assert!(slice::from_raw_parts(zeroed.cast::<u8>(), 900).iter().all(|&byte| byte == 0));
        ts_free(zeroed);
        ts_free(ptr::null_mut());

        let aligned = ts_aligned_alloc(4096, 300);
        assert_eq!(aligned.addr() % 4096, 0);
        aligned.cast::<u8>().write_bytes(9, 300);
        let aligned = ts_realloc_aligned(aligned, 4096, 70_000);
        assert_eq!(aligned.addr() % 4096, 0);
        assert!(slice::from_raw_parts(aligned.cast::<u8>(), 300).iter().all(|&byte| byte == 9));
        ts_free_aligned_sized(aligned, 4096, 70_000);

        assert!(ts_calloc(usize::MAX, 2).is_null());
        assert!(ts_realloc_aligned(ptr::null_mut(), 64, isize::MAX as usize).is_null());
        assert_eq!(ts_usable_size(ptr::null()), 0);
    }
    assert!(ts_good_size(100, 0) >= 100);
    assert_eq!(ts_good_size(100, 3), 0);
    assert!(ts_version() > 0);
    ts_trim(0);
    ts_thread_flush();
    let purged = ts_purge();
    let mut statistics = ts_statistics::default();
    // SAFETY: the size is that of the structure.
    assert_eq!(unsafe { ts_stats(&mut statistics, size_of::<ts_statistics>()) }, 1);
    let parts = [
        statistics.small_bytes,
        statistics.large_bytes,
        statistics.bin_bytes,
        statistics.waiting_bytes,
        statistics.slab_bytes,
        statistics.ended_bytes,
        statistics.page_bytes,
        statistics.returned_bytes,
    ];
    assert_eq!(parts.iter().sum::<usize>(), statistics.mapped_bytes);
    assert!(purged <= statistics.purged_bytes);
    assert_eq!(statistics.hard_limit_bytes, 0);
    assert!((-1..=200).contains(&ts_housekeep()));
}

#[test]
fn options_change_while_the_program_runs() {
    let mut value = [0; 32];
    // SAFETY: texts end with a zero, and the value has the room that is named.
    unsafe {
        assert_eq!(ts_option_set(c"BACKGROUND".as_ptr(), c"off".as_ptr()), 0);
        assert_eq!(ts_option_set(c"BACKGROUND".as_ptr(), c"of".as_ptr()), 22);
        let name = c"TSMALLOC_BACKGROUND".as_ptr();
        assert_eq!(ts_option_get(name, value.as_mut_ptr(), value.len()), 0);
        assert_eq!(std::ffi::CStr::from_ptr(value.as_ptr()), c"off");
    }
}

#[test]
fn a_scope_allocates_in_its_arena() {
    let arena = ts_arena_create();
    assert_eq!(arena.is_null(), cfg!(feature = "secure"), "the hardened heap has none");
    if arena.is_null() {
        return;
    }
    assert_eq!(ts_scope_enter(arena), 0);
    // SAFETY: the block is in use until the arena's end, and not afterwards.
    unsafe {
        ts_malloc(5000).cast::<u8>().write_bytes(1, 5000);
        assert_ne!(ts_arena_destroy(arena), 0);
        assert_eq!(ts_scope_leave(), 0);
        let mut usage = ArenaUsage::default();
        assert_eq!(ts_arena_stats(arena, &raw mut usage), 0);
        assert!(usage.used_bytes >= 5000 && usage.slab_bytes >= usage.used_bytes);
        assert_eq!(ts_arena_destroy(arena), 0);
    }
    assert_ne!(ts_scope_leave(), 0);
}

/// Without `override` libc keeps its malloc, whose block of 33 bytes has 40 usable ones. With it, the
/// block is known here.
#[cfg(target_env = "gnu")]
#[test]
fn malloc_is_libcs_unless_overridden() {
    unsafe extern "C" {
        fn malloc(size: usize) -> *mut std::ffi::c_void;
        fn malloc_usable_size(block: *mut std::ffi::c_void) -> usize;
        fn free(block: *mut std::ffi::c_void);
    }
    // SAFETY: the block is freed once.
    unsafe {
        let block = malloc(33);
        let usable = malloc_usable_size(block);
        if cfg!(feature = "override") {
            assert_eq!(usable, ts_usable_size(block));
            assert!(usable >= 33);
        } else {
            assert_eq!(usable, 40);
        }
        free(block);
    }
}
