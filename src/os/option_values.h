// Option values, as text and as the 64 bits of options.h. Must not depend on which options exist.
// For use inside os/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "os/size_option.h"

namespace ts {

// Part of a text.
struct Word {
  const char* begin;
  std::size_t length;

  bool is(Word other) const noexcept {
    return other.length == length && std::memcmp(begin, other.begin, length) == 0;
  }
};

Word word_until(const char* text, char end) noexcept;

// The index of a word in a list separated by bars; false if it is not in the list.
bool find_word(const char* words, Word wanted, std::uint64_t& number) noexcept;

enum class Kind : std::uint8_t {
  choice,  // one of several words; the value is the word's index
  number,
  size,          // a SizeOption: one of several words, bytes, or a share of memory
  bytes,         // the same, without a share of memory
  milliseconds,  // the same, in milliseconds
};

// The values an option accepts.
struct Range {
  Kind kind;
  std::uint32_t most;  // for a number, bytes or milliseconds; the minimum is 0
  const char* words;   // for all kinds but a number
};

// Parses a value; false if it is invalid.
bool parse(const Range& range, const char* text, std::uint64_t& value) noexcept;

// Text in a buffer of its own, long enough for any value or range.
class ShortText {
 public:
  void add(Word word) noexcept;
  void add(std::uint64_t number) noexcept;
  const char* begin() const noexcept { return bytes_; }
  std::size_t length() const noexcept { return length_; }

 private:
  std::size_t length_ = 0;
  char bytes_[64];
};

ShortText text_of(const Range& range) noexcept;
ShortText text_of(const Range& range, std::uint64_t value) noexcept;

}  // namespace ts
