// Integer arithmetic shared by the allocators. Pure functions without state or operating system.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts {

// Rounds `n` up to a multiple of `alignment`, a power of two. The caller has excluded overflow.
constexpr std::size_t align_up(std::size_t n, std::size_t alignment) noexcept {
  return (n + alignment - 1) & ~(alignment - 1);
}

constexpr std::size_t align_down(std::size_t n, std::size_t alignment) noexcept {
  return n & ~(alignment - 1);
}

// Compares the bits below and including n's lowest: std::has_single_bit is a function call where
// CPUs may lack popcnt.
constexpr bool is_power_of_two(std::size_t n) noexcept { return (n ^ (n - 1)) > n - 1; }
static_assert(is_power_of_two(1) && is_power_of_two(64) && is_power_of_two(~(SIZE_MAX >> 1)));
static_assert(!is_power_of_two(0) && !is_power_of_two(48) && !is_power_of_two(SIZE_MAX));

// Spreads an address over 64 bits, so that addresses at any stride get unrelated values. One
// multiplication is not enough: multiples of a constant are so regular that a treap over them
// degenerates (figures in docs/adr/0100-classic-heaps.md).
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  constexpr std::uint64_t golden = 0x9e37'79b9'7f4a'7c15U;  // 2^64 / golden ratio (Knuth, The Art
                                                            // of Computer Programming 3, 6.4)
  x *= golden;
  x ^= x >> 32;
  return x * golden;
}

inline std::uintptr_t address_of(const void* p) noexcept {
  return reinterpret_cast<std::uintptr_t>(p);
}

}  // namespace ts
