// What follows the bytes that the program requested, where an overflow would write first. A block
// in a slab has a tail up to the end of its slot:
//
//   block | requested: zero, mark | zeros | block_bytes: zero, mark, 6 bytes of secret and length
//
// The first byte is always zero: it terminates an unterminated string, and writing anything else
// there is detected. The mark after it is not zero, so an overflow by two zeros is detected too;
// one by a single zero changes nothing. The end word is random per slab and encodes the length of
// the tail, so the heap knows the requested size and notices a damaged word. A tail that is only
// the end word has one zero and one mark. In a tail one byte longer, that byte is the zero, and the
// first byte of the end word is the mark.
//
// Long slots (16 KiB and more) and large blocks have the word right after the requested bytes,
// followed by zeros up to the end of the slot or page. It does not encode the length, which is kept
// elsewhere. So the tail touches at most one page that the program does not use.
//
// Words and marks are read and written only under the heap's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "secure/size_classes.h"
#include "secure/zero.h"

namespace ts::secure {

inline constexpr std::byte mark{0xa5};

// Every canary begins with a zero and the mark; its other bytes are random.
inline constexpr std::uint64_t canary_begin = static_cast<std::uint64_t>(mark) << 8;
inline constexpr std::uint64_t canary_mask = ~std::uint64_t{0xffff};
constexpr std::uint64_t make_canary(std::uint64_t random) noexcept {
  return (random & canary_mask) | canary_begin;
}
constexpr bool is_canary(std::uint64_t word) noexcept {
  return (word & ~canary_mask) == canary_begin;
}

// The length is multiplied so that every byte of the word depends on it: a word with one wrong byte
// decodes to a length that no slot can have, except once in billions.
inline constexpr std::uint64_t length_factor = 0xc2b2'ae3d'27d5;
inline constexpr std::uint64_t length_inverse = [] {
  std::uint64_t inverse = length_factor;  // right in 3 bits; each step doubles them
  for (int i = 0; i < 5; ++i) inverse *= 2 - length_factor * inverse;
  return inverse;
}();
static_assert(length_factor * length_inverse == 1);

// How the first two bytes of an end word differ from those of its canary.
constexpr std::uint64_t first_byte_of_end(std::uint64_t length) noexcept {
  return length == 1 ? static_cast<std::uint64_t>(mark) : 0;
}
constexpr std::uint64_t end_word(std::uint64_t canary, std::size_t length) noexcept {
  return canary ^ ((length * length_factor) << 16) ^ first_byte_of_end(length);
}
// Larger than any slot if the word does not belong to this canary.
constexpr std::size_t length_of_end_word(std::uint64_t word, std::uint64_t canary) noexcept {
  const std::uint64_t both = word ^ canary;
  const std::uint64_t length = ((both >> 16) * length_inverse) << 16 >> 16;
  return (both & ~canary_mask) == first_byte_of_end(length) ? length : SIZE_MAX;
}

// Whether the last bytes before `end` are zero. At least 8 bytes before `end` must be readable.
inline bool ends_with_zeros(const std::byte* end, std::size_t bytes) noexcept {
  if (bytes == 0) return true;
  if (bytes < 8) return word_at(end - 8) >> (64 - 8 * bytes) == 0;  // all targets are little-endian
  const std::size_t words = bytes & ~std::size_t{7};
  return word_at(end - bytes) == 0 && is_zero(end - words, words);
}

// ---- of large blocks ----

inline void write_large_tail(std::byte* tail, std::size_t bytes, std::uint64_t canary) noexcept {
  if (bytes >= sizeof canary) {
    std::memcpy(tail, &canary, sizeof canary);
  } else {
    for (std::size_t i = 0; i < bytes; ++i) tail[i] = static_cast<std::byte>(canary >> (8 * i));
  }
}
// The tail's end is the end of a page or slot, so 8 bytes before it are readable.
inline bool is_large_tail_intact(const std::byte* tail, std::size_t bytes,
                                 std::uint64_t canary) noexcept {
  if (bytes == 0) return true;
  if (bytes < sizeof canary) {
    const std::size_t others = 8 * (sizeof canary - bytes);
    return (word_at(tail + bytes - sizeof canary) ^ canary << others) >> others == 0;
  }
  return word_at(tail) == canary && ends_with_zeros(tail + bytes, bytes - sizeof canary);
}

// ---- of blocks in slabs, whose memory is zero before ----

// The words of a slot that its tail makes nonzero, to be skipped when looking for stray writes:
// from `begin` to `end`, and from `last` to the end of the slot.
struct TailWords {
  std::size_t begin;
  std::size_t end;
  std::size_t last;
};

constexpr TailWords tail_words(const SizeClass& c, std::size_t asked) noexcept {
  constexpr std::size_t in_word = 7;
  const std::size_t begin = asked & ~in_word;
  if (c.is_long()) return {begin, (asked + canary_bytes + in_word) & ~in_word, c.slot_bytes};
  // The word that holds the mark; it is the end word if there is no room for a mark before it.
  const std::size_t with_mark = (asked + 1) & ~in_word;
  return {with_mark, with_mark + canary_bytes, c.block_bytes};
}
// Whether the tail has a mark of its own before the end word.
constexpr bool has_mark(const SizeClass& c, std::size_t asked) noexcept {
  return asked + 1 < c.block_bytes;
}

// Whether the whole slot is zero except for those words.
inline bool is_zero_around(const std::byte* block, const TailWords& words) noexcept {
  return is_zero(block, words.begin) &&
         (words.end >= words.last || is_zero(block + words.end, words.last - words.end));
}
// Whether those words are zero, before the tail is written.
inline bool are_zero(const std::byte* block, const SizeClass& c, const TailWords& words) noexcept {
  std::uint64_t any = word_at(block + words.begin);
  if (words.end - words.begin > canary_bytes) any |= word_at(block + words.begin + canary_bytes);
  if (words.last != c.slot_bytes) any |= word_at(block + words.last);
  return any == 0;
}

inline void write_tail(std::byte* block, const SizeClass& c, std::size_t asked,
                       std::uint64_t canary) noexcept {
  if (c.is_long()) {
    std::memcpy(block + asked, &canary, sizeof canary);
    return;
  }
  const std::uint64_t word = end_word(canary, c.block_bytes - asked);
  if (has_mark(c, asked)) block[asked + 1] = mark;
  std::memcpy(block + c.block_bytes, &word, sizeof word);
}
// Undoes what write_tail() wrote before the end word.
inline void erase_tail(std::byte* block, const SizeClass& c, std::size_t asked) noexcept {
  if (c.is_long()) {
    std::memset(block + asked, 0, canary_bytes);
  } else if (has_mark(c, asked)) {
    block[asked + 1] = std::byte{0};
  }
}
// The last word of a long slot with that tail.
inline std::uint64_t last_word(const SizeClass& c, std::size_t asked,
                               std::uint64_t canary) noexcept {
  const std::size_t zeros = c.block_bytes - asked;
  return zeros < sizeof canary ? canary >> (8 * zeros) : 0;
}

inline constexpr std::size_t no_size = SIZE_MAX;

// The requested size; no_size if the tail is damaged. For a long slot, the caller passes it in
// `known`.
inline std::size_t asked_by_tail(const std::byte* block, const SizeClass& c, std::uint64_t canary,
                                 std::size_t known) noexcept {
  if (c.is_long()) {
    const std::size_t bytes = c.slot_bytes - known;
    return is_large_tail_intact(block + known, bytes, canary) ? known : no_size;
  }
  const std::byte* const end = block + c.block_bytes;
  const std::size_t length = length_of_end_word(word_at(end), canary);
  if (length > c.block_bytes) return no_size;
  const std::size_t asked = c.block_bytes - length;
  if (!has_mark(c, asked)) return length == 0 || *(end - 1) == std::byte{0} ? asked : no_size;
  const std::byte* const tail = end - length;
  return tail[0] == std::byte{0} && tail[1] == mark && ends_with_zeros(end, length - 2) ? asked
                                                                                        : no_size;
}

}  // namespace ts::secure
