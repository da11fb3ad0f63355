// Free memory of the hardened heap is zero, and is checked before it is handed out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ts::secure {

inline std::uint64_t word_at(const std::byte* place) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, place, sizeof word);
  return word;
}

// Whether all bytes are zero; `bytes` must be a multiple of 8.
inline bool is_zero(const std::byte* begin, std::size_t bytes) noexcept {
  using Words = std::uint64_t __attribute__((vector_size(16)));
  const auto at = [](const std::byte* place) {
    Words words;
    std::memcpy(&words, place, sizeof words);
    return words;
  };
  const auto is_none = [](const Words& words) { return (words[0] | words[1]) == 0; };
  const std::byte* const end = begin + bytes;
  if (bytes < sizeof(Words)) return bytes == 0 || word_at(begin) == 0;
  for (; end - begin > 64; begin += 64) {
    if (!is_none((at(begin) | at(begin + 16)) | (at(begin + 32) | at(begin + 48)))) return false;
  }
  Words any = at(end - sizeof any);
  for (; end - begin > 16; begin += 16) any |= at(begin);
  return is_none(any);
}

// Zeroes a few bytes without calling the C library, which is not allowed under a lock.
inline void clear_bytes(std::byte* begin, std::size_t bytes) noexcept {
  using Words = std::uint64_t __attribute__((vector_size(16)));
  constexpr Words zeros{};
  constexpr std::size_t step = 4 * sizeof zeros;
  // Without the barriers, compilers turn the loops into calls to memset.
  for (; bytes >= step; begin += step, bytes -= step) {
    for (std::size_t at = 0; at < step; at += sizeof zeros)
      __builtin_memcpy(begin + at, &zeros, sizeof zeros);
    __asm__ volatile("" ::: "memory");
  }
  for (; bytes >= sizeof zeros; begin += sizeof zeros, bytes -= sizeof zeros) {
    __builtin_memcpy(begin, &zeros, sizeof zeros);
    __asm__ volatile("" ::: "memory");
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
