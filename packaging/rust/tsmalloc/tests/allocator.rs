//! The allocator as the global one of this program: what `GlobalAlloc` promises of it.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_int, c_uint};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{env, slice, thread};

use tsmalloc::TsMalloc;

#[global_allocator]
static ALLOCATOR: TsMalloc = TsMalloc;

const MIB: usize = 1 << 20;

/// A block that is checked: aligned, and full of a pattern that depends on its address.
struct Block {
    address: *mut u8,
    layout: Layout,
}

impl Block {
    fn new(size: usize, alignment: usize) -> Self {
        let layout = Layout::from_size_align(size, alignment).unwrap();
        // SAFETY: the size is not 0.
        Self::filled(unsafe { ALLOCATOR.alloc(layout) }, layout)
    }

    fn filled(address: *mut u8, layout: Layout) -> Self {
        assert!(!address.is_null(), "no memory for {layout:?}");
        assert_eq!(address.addr() % layout.align(), 0, "{layout:?} at {address:p}");
        let mut block = Self { address, layout };
        let pattern = block.pattern();
        block.bytes().fill(pattern);
        block
    }

    fn pattern(&self) -> u8 {
        (self.address.addr() / 16 % 251 + 1) as u8
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the block has the bytes of its layout, all of them written before they are read.
        unsafe { slice::from_raw_parts_mut(self.address, self.layout.size()) }
    }

    fn check(&mut self) {
        let pattern = self.pattern();
        assert!(is_all(self.bytes(), pattern), "{:?} was overwritten", self.layout);
    }

    fn resized(mut self, size: usize) -> Self {
        self.check();
        let (pattern, kept) = (self.pattern(), self.layout.size().min(size));
        // SAFETY: the block is in use, and the size is not 0.
        let address = unsafe { ALLOCATOR.realloc(self.address, self.layout, size) };
        assert!(!address.is_null());
        let layout = Layout::from_size_align(size, self.layout.align()).unwrap();
        // SAFETY: so many bytes were written before, and realloc keeps them.
        let contents = unsafe { slice::from_raw_parts(address, kept) };
        assert!(is_all(contents, pattern), "realloc of {:?} to {size}", self.layout);
        Self::filled(address, layout)
    }

    fn free(mut self) {
        self.check();
        // SAFETY: the block is in use.
        unsafe { ALLOCATOR.dealloc(self.address, self.layout) };
    }
}

/// Whether all bytes have one value; by the page, since tests are not optimised.
fn is_all(bytes: &[u8], value: u8) -> bool {
    let page = [value; 4096];
    bytes.chunks(page.len()).all(|chunk| *chunk == page[..chunk.len()])
}

/// 1, 2, 4, ... 2 MiB.
fn alignments() -> impl Iterator<Item = usize> {
    (0..=21).map(|power| 1 << power)
}

/// Sizes around what may be a limit of anything: powers of two, and three quarters of them.
fn sizes() -> Vec<usize> {
    let around = |size: usize| [size - size / 4, size - 1, size, size + 1];
    let mut sizes: Vec<usize> = (0..=21).flat_map(|power| around(1 << power)).collect();
    sizes.retain(|&size| size > 0);
    sizes
}

#[test]
fn blocks_are_aligned_and_do_not_overlap() {
    for alignment in alignments() {
        let mut blocks: Vec<Block> =
            sizes().into_iter().map(|size| Block::new(size, alignment)).collect();
        blocks.iter_mut().for_each(Block::check);
        blocks.into_iter().for_each(Block::free);
    }
}

#[test]
fn zeroed_blocks_are_zero() {
    for alignment in alignments() {
        for size in sizes() {
            // Memory that was used.
            Block::new(size, alignment).free();
            let layout = Layout::from_size_align(size, alignment).unwrap();
            // SAFETY: the size is not 0, and zeroed bytes may be read.
            let (address, zeroed) = unsafe {
                let address = ALLOCATOR.alloc_zeroed(layout);
                assert!(!address.is_null());
                (address, is_all(slice::from_raw_parts(address, size), 0))
            };
            assert!(zeroed, "{layout:?}");
            Block::filled(address, layout).free();
        }
    }
}

#[test]
fn realloc_keeps_contents_and_alignment() {
    for alignment in alignments() {
        let mut block = Block::new(1, alignment);
        for size in sizes() {
            block = block.resized(size);
        }
        for size in sizes().into_iter().rev() {
            block = block.resized(size);
        }
        // In leaps.
        for size in [3 * MIB, 40, MIB, 7, 40_000, 1] {
            block = block.resized(size);
        }
        block.free();
    }
}

#[test]
fn what_cannot_exist_is_null() {
    for alignment in alignments() {
        let most = isize::MAX as usize - (alignment - 1);
        let layout = Layout::from_size_align(most, alignment).unwrap();
        let mut block = Block::new(100, alignment);
        // SAFETY: the sizes are not 0, and the block is in use.
        unsafe {
            assert!(ALLOCATOR.alloc(layout).is_null());
            assert!(ALLOCATOR.alloc_zeroed(layout).is_null());
            assert!(ALLOCATOR.realloc(block.address, block.layout, most).is_null());
        }
        block.check();
        block.free();
    }
}

unsafe extern "C" {
    fn fork() -> c_int;
    fn alarm(seconds: c_uint) -> c_uint;
    fn waitpid(process: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
}

#[test]
fn the_child_of_a_fork_allocates_while_threads_of_its_parent_do() {
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    let busy: Vec<_> = (0..3)
        .map(|_| {
            thread::spawn(|| {
                while !IS_OVER.load(Ordering::Relaxed) {
                    let blocks: Vec<Block> =
                        [24, 700, 50_000, 2 * MIB].map(|size| Block::new(size, 8)).into();
                    blocks.into_iter().for_each(Block::free);
                }
            })
        })
        .collect();
    for _ in 0..50 {
        let mut status = -1;
        // SAFETY: the child calls nothing but the allocator, and ends.
        unsafe {
            let child = fork();
            if child == 0 {
                alarm(20);
                for size in [24, 700, 50_000, 2 * MIB] {
                    Block::new(size, 64).resized(2 * size).free();
                }
                _exit(0);
            }
            assert!(child > 0);
            assert_eq!(waitpid(child, &raw mut status, 0), child);
        }
        assert_eq!(status, 0, "a child does not end well");
    }
    IS_OVER.store(true, Ordering::Relaxed);
    for thread in busy {
        thread.join().unwrap();
    }
}

/// Runs one of the tests below in a process of its own, in which it misbehaves. What it wrote.
fn misbehave(test: &str, environment: &[(&str, &str)]) -> (bool, String) {
    let run = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env("MISBEHAVE", "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    (run.status.success(), String::from_utf8_lossy(&run.stderr).into_owned())
}

#[test]
fn dealloc_names_the_size() {
    if env::var_os("MISBEHAVE").is_some() {
        let block = Block::new(100, 8);
        let wrong = Layout::from_size_align(5_000, 8).unwrap();
        // SAFETY: none: the allocator may end the process, and does no more than that.
        unsafe { ALLOCATOR.dealloc(block.address, wrong) };
        return;
    }
    let (is_survived, errors) = misbehave("dealloc_names_the_size", &[]);
    assert!(!is_survived && errors.contains("size"), "{errors}");
}

#[test]
fn options_are_read() {
    if env::var_os("MISBEHAVE").is_some() {
        return;
    }
    let (_, errors) =
        misbehave("options_are_read", &[("TSMALLOC_SHOW", "1"), ("TSMALLOC_ON_MISUSE", "abort")]);
    assert!(errors.contains("TSMALLOC_ON_MISUSE=abort (environment"), "{errors}");
}

#[cfg(feature = "override")]
#[test]
fn libc_allocates_from_it() {
    use std::ffi::{CStr, c_char, c_void};
    unsafe extern "C" {
        fn strdup(text: *const c_char) -> *mut c_char;
        fn free(block: *mut c_void);
    }
    const TEXT: &CStr = c"a text of libc's own";
    // SAFETY: strdup returns a block of malloc.
    unsafe {
        let copy = strdup(TEXT.as_ptr());
        assert_eq!(CStr::from_ptr(copy), TEXT);
        assert!(tsmalloc_sys::ts_usable_size(copy.cast()) > TEXT.count_bytes());
        free(copy.cast());
    }
}

#[cfg(feature = "extension")]
#[test]
fn the_extension_answers() {
    for size in sizes() {
        let good = tsmalloc::good_size(Layout::from_size_align(size, 8).unwrap());
        assert!(good >= size);
        let boxed = vec![7_u8; size].into_boxed_slice();
        assert!(tsmalloc::usable_size(&boxed) >= size);
        assert!(tsmalloc::usable_size(&boxed) <= good.max(size));
    }
    assert_eq!(tsmalloc::usable_size(&Box::new(())), 0);
    let too_large = Layout::from_size_align(isize::MAX as usize, 1).unwrap();
    assert_eq!(tsmalloc::good_size(too_large), isize::MAX as usize);

    let blocks: Vec<Block> = (0..64).map(|_| Block::new(MIB, 8)).collect();
    blocks.into_iter().for_each(Block::free);
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<usize>().unwrap()
    };
    let before = resident();
    tsmalloc::trim(0);
    assert!(resident() <= before + 1024, "trim makes the process larger");
}

#[cfg(feature = "extension")]
#[test]
fn housekeeping_comes_to_an_end() {
    let blocks: Vec<Block> = (0..64).map(|_| Block::new(MIB, 8)).collect();
    blocks.into_iter().for_each(Block::free);
    let mut pauses = 0;
    while let Some(pause) = tsmalloc::housekeep() {
        pauses += 1;
        assert!(pauses < 10_000, "housekeeping has no end");
        std::thread::sleep(pause);
    }
}

#[cfg(feature = "extension")]
#[test]
fn the_version_is_that_of_the_package() {
    let number = |text: &str| text.parse::<u32>().unwrap();
    let of_package = number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
        + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
        + number(env!("CARGO_PKG_VERSION_PATCH"));
    // In a checkout the package has none.
    if of_package != 0 {
        assert_eq!(tsmalloc::version(), of_package);
    }
    assert_ne!(tsmalloc::version(), 0);
}
