// Free memory of the hardened heap is zero, and is compared with it before a program gets it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::secure {

// Whether all bytes are zero; `bytes` is a multiple of 8.
bool is_zero(const std::byte* begin, std::size_t bytes) noexcept;

// Makes a few bytes zero, without a call of the C library: under a lock, there is none.
inline void clear_bytes(std::byte* begin, std::size_t bytes) noexcept {
  using Words = std::uint64_t __attribute__((vector_size(16)));
  for (; bytes >= sizeof(Words); begin += sizeof(Words), bytes -= sizeof(Words)) {
    constexpr Words zeros{};
    __builtin_memcpy(begin, &zeros, sizeof zeros);
    __asm__ volatile("" ::: "memory");  // a loop, which compilers else make a call of memset
  }
  for (; bytes != 0; ++begin, --bytes) {
    *begin = std::byte{0};
    __asm__ volatile("" ::: "memory");
  }
}

// Makes all of a slot zero. From a page on, writes to none that is zero already: of one that was
// never touched, the system has only the page of zeros that all share. Both numbers are multiples
// of 16.
void make_zero(std::byte* begin, std::size_t bytes) noexcept;

}  // namespace ts::secure
