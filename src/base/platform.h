// Facts about compiler, CPU and C library; the only file outside os/ with preprocessor conditions.
// Platforms for which the allocators were not designed are rejected at compile time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#if !defined(__linux__) || !defined(__LP64__)
#error "tsmalloc is written for 64-bit Linux: packed links assume user addresses of 48 bits at most"
#endif

// Debug level (src/README.md): 0 only checks for misuse, 1 also invariants where a structure
// changes hands, 2 the whole heap now and then, 3 the heap at every slow path.
#ifndef TS_DEBUG
#define TS_DEBUG 0
#endif

// Whether events are counted (base/event_counts.h): 1 in the libraries of lib/counted, 0 in all
// others.
#ifndef TS_COUNTING
#define TS_COUNTING 0
#endif

// Lets clang's thread-safety analysis check the lock discipline at compile time; other compilers
// ignore these.
#if defined(__clang__)
#define TS_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define TS_THREAD_ANNOTATION(x)
#endif
#define TS_CAPABILITY(name) TS_THREAD_ANNOTATION(capability(name))
#define TS_SCOPED_CAPABILITY TS_THREAD_ANNOTATION(scoped_lockable)
#define TS_GUARDED_BY(lock) TS_THREAD_ANNOTATION(guarded_by(lock))
#define TS_REQUIRES(...) TS_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define TS_ACQUIRE(...) TS_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TS_ACQUIRE_SHARED(...) TS_THREAD_ANNOTATION(acquire_shared_capability(__VA_ARGS__))
#define TS_TRY_ACQUIRE(...) TS_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define TS_RELEASE(...) TS_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define TS_RELEASE_SHARED(...) TS_THREAD_ANNOTATION(release_shared_capability(__VA_ARGS__))
#define TS_RELEASE_GENERIC(...) TS_THREAD_ANNOTATION(release_generic_capability(__VA_ARGS__))
#define TS_NO_ANALYSIS TS_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace ts {

inline constexpr int debug_level = TS_DEBUG;
inline constexpr bool counting = TS_COUNTING != 0;

// Whether the C library calls constructors with main's arguments, as glibc does. Others, such as
// musl, have set `environ` by then.
#if defined(__GLIBC__)
inline constexpr bool constructors_have_arguments = true;
#else
inline constexpr bool constructors_have_arguments = false;
#endif

// For names that only glibc has.
#if defined(__GLIBC__)
#define TS_ONLY_GLIBC(...) __VA_ARGS__
#else
#define TS_ONLY_GLIBC(...)
#endif

// Threads that write to the same line slow each other down (two lines, because x86 prefetches them
// in pairs).
inline constexpr std::size_t cache_line_bytes = 128;

// User addresses end below this: without an explicit hint the kernel returns none above, even with
// five-level paging. A kernel may have fewer bits.
#if defined(__aarch64__)
inline constexpr unsigned address_bits = 48;
#else
inline constexpr unsigned address_bits = 47;
#endif
inline constexpr std::uintptr_t address_limit = std::uintptr_t{1} << address_bits;

// Whether everything that can see a thread's memory, such as a forked child, sees its stores in
// order.
#if defined(__x86_64__)
inline constexpr bool keeps_stores_in_order = true;
#else
inline constexpr bool keeps_stores_in_order = false;
#endif

// No kernel for this architecture has larger pages. (os::page_bytes() returns the actual size.)
#if defined(__aarch64__)
inline constexpr std::size_t max_os_page_bytes = std::size_t{64} << 10;
#else
inline constexpr std::size_t max_os_page_bytes = std::size_t{4} << 10;
#endif

// gcc, at least before version 15, needs help to compare with memory in one instruction. Load-store
// architectures have no such instruction.
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define TS_X86_ASM 1
#else
#define TS_X86_ASM 0
#endif

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

// The ordering of a load whose value leads to the address of data published with it by a release.
// CPUs keep such dependent loads in order; ThreadSanitizer only understands acquire.
#if defined(__SANITIZE_THREAD__)
inline constexpr std::memory_order memory_order_dependent = std::memory_order_acquire;
#else
inline constexpr std::memory_order memory_order_dependent = std::memory_order_relaxed;
#endif

// Whether a value is below a limit that is read relaxed.
inline bool is_below(std::size_t value, const std::atomic<std::size_t>& limit) noexcept {
#if TS_X86_ASM
  bool below;
  __asm__("cmp %[limit], %[value]" : "=@ccb"(below) : [value] "r"(value), [limit] "m"(limit));
  return below;
#else
  return value < limit.load(std::memory_order_relaxed);
#endif
}

// XORs a value with one that is read with memory_order_dependent.
inline std::size_t exclusive_or(std::uint32_t value,
                                const std::atomic<std::uint32_t>& other) noexcept {
#if TS_X86_ASM
  std::size_t result = value;
  __asm__("xorl %[other], %k[result]" : [result] "+r"(result) : [other] "m"(other));
  return result;
#else
  return value ^ other.load(memory_order_dependent);
#endif
}

// Decrements a number; true if the result is negative. If the result is used, gcc would compute the
// address first.
inline bool decrement_below_zero(std::int32_t& number) noexcept {
#if TS_X86_ASM
  bool is_negative;
  __asm__("subl $1, %[number]" : [number] "+m"(number), "=@ccs"(is_negative));
  return is_negative;
#else
  return --number < 0;
#endif
}

// Sets a bit of a word, by its number modulo 64; true if it was set. gcc never uses the flag that
// the instruction sets.
inline bool set_bit(std::uint64_t& word, std::uint64_t number) noexcept {
#if TS_X86_ASM
  bool was_set;
  __asm__("btsq %[number], %[word]" : [word] "+r"(word), "=@ccc"(was_set) : [number] "r"(number));
  return was_set;
#else
  const std::uint64_t bit = std::uint64_t{1} << number % 64;
  const bool was_set = (word & bit) != 0;
  word |= bit;
  return was_set;
#endif
}

// The same value, but opaque to the compiler, which recomputes what is derived from it and treats
// it as one number rather than the sum that it was.
template <class Integer>
inline Integer unrelated(Integer value) noexcept {
  __asm__ inline("" : "+r"(value));  // "inline": it is short
  return value;
}
static_assert(sizeof(void*) == 8);

// The same pointer in the result register, so that gcc leaves the arguments in their registers.
template <class Type>
inline Type* in_result_register(Type* pointer) noexcept {
#if TS_X86_ASM
  __asm__("" : "+a"(pointer));
#endif
  return pointer;
}

// The same value for use in an address. x86-64 computes addresses within each access for free if
// they are unrelated and no load waits for a store (bin_at); other architectures compute a common
// address once.
template <class Integer>
inline Integer of_one_access(Integer value) noexcept {
#if defined(__x86_64__)
  return unrelated(value);
#else
  return value;
#endif
}

// Prefetches for writing; any address is safe. (The compilers' builtin prefetches for reading on
// x86-64, since the first such CPUs had nothing else; on those, and on newer ones without the
// instruction, this one is a no-op.)
inline void prefetch_to_write(const void* p) noexcept {
#if defined(__x86_64__)
  __asm__ volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

// Hints to the CPU that this is a spin loop.
inline void spin_pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // waits about as long as x86's pause; most cores ignore `yield`
#elif defined(__riscv)
  __asm__ volatile(".insn i 0x0f, 0, x0, x0, 0x010");  // `pause`, a no-op on older cores
#endif
}

}  // namespace ts
