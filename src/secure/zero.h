// Free memory of the hardened heap is zero, and is checked before it is handed out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::secure {

// Whether all bytes are zero; `bytes` must be a multiple of 8.
bool is_zero(const std::byte* begin, std::size_t bytes) noexcept;

// Zeroes a few bytes without calling the C library, which is not allowed under a lock.
inline void clear_bytes(std::byte* begin, std::size_t bytes) noexcept {
  using Words = std::uint64_t __attribute__((vector_size(16)));
  for (; bytes >= sizeof(Words); begin += sizeof(Words), bytes -= sizeof(Words)) {
    constexpr Words zeros{};
    __builtin_memcpy(begin, &zeros, sizeof zeros);
    __asm__ volatile("" ::: "memory");  // else compilers turn the loop into a call to memset
  }
  for (; bytes != 0; ++begin, --bytes) {
    *begin = std::byte{0};
    __asm__ volatile("" ::: "memory");
  }
}

// Zeroes a slot. From a page on, does not write to pages that are zero already: an untouched one is
// still the kernel's shared zero page. Both arguments are multiples of 16.
void make_zero(std::byte* begin, std::size_t bytes) noexcept;

}  // namespace ts::secure
