// Integer arithmetic that the allocators share. Pure functions; no state, no operating system.
#pragma once

#include <bit>
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

constexpr bool is_power_of_two(std::size_t n) noexcept { return std::has_single_bit(n); }

// Mixes an address into a well-spread 64-bit number (the finaliser of MurmurHash3, public domain):
// neighbours get unrelated values.
constexpr std::uint64_t mix(std::uint64_t x) noexcept {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

inline std::uintptr_t address_of(const void* p) noexcept {
  return reinterpret_cast<std::uintptr_t>(p);
}

}  // namespace ts
