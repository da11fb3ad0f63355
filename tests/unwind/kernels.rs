//! Code of Rust whose stacks are compared: closures, sorting, threads, and panics that pass.
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};

extern "C" {
    fn compare_stacks();
}

#[inline(never)]
fn compare() {
    unsafe { compare_stacks() };
    std::hint::black_box(());
}

struct Compares(String);
impl Drop for Compares {
    fn drop(&mut self) {
        compare();
        std::hint::black_box(&self.0);
    }
}

#[inline(never)]
fn recurse(levels: u32, random: u32) -> u64 {
    let text = vec![random; (random % 50) as usize + 1];
    if levels == 0 {
        compare();
        return 1;
    }
    let next = random.wrapping_mul(1664525).wrapping_add(1013904223);
    let sum = match (random >> 16) % 4 {
        0 => recurse(levels - 1, next),
        1 => {
            let big = std::hint::black_box([next as u8; 20_000]);
            recurse(levels - 1, next) + big[7] as u64
        }
        2 => {
            let function: Box<dyn Fn(u32) -> u64> = Box::new(move |levels| recurse(levels, next));
            function(levels - 1)
        }
        _ => (0..1).map(|_| recurse(levels - 1, next)).sum(),
    };
    sum + text[0] as u64
}

#[inline(never)]
fn panic_from(levels: u32) {
    let _compares = Compares(levels.to_string());
    if levels == 0 {
        panic!("on purpose");
    }
    panic_from(levels - 1);
}

#[no_mangle]
pub extern "C" fn run_rust_kernels() {
    std::panic::set_hook(Box::new(|_| compare()));
    for random in 1..500u32 {
        std::hint::black_box(recurse(random % 30, random.wrapping_mul(2654435761)));
    }
    for levels in 0..30 {
        assert!(catch_unwind(AssertUnwindSafe(|| panic_from(levels))).is_err());
        compare();
    }
    let mut numbers: Vec<u32> = (0..200).map(|i| i * 37 % 101).collect();
    numbers.sort_by(|a, b| {
        compare();
        a.cmp(b)
    });
    numbers.sort_unstable_by_key(|a| {
        compare();
        !*a
    });
    let map: BTreeMap<u32, u32> = numbers.iter().map(|&a| (a, a)).collect();
    map.values().for_each(|_| compare());
    let threads: Vec<_> = (0..2).map(|i| std::thread::spawn(move || recurse(20, i))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let _ = std::panic::take_hook();
}
