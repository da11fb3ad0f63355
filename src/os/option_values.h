// The values of options, as text and as the 64 bits of options.h. Refuses to know which options
// there are. Inside os/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "os/size_option.h"

namespace ts {

// A part of a text.
struct Word {
  const char* begin;
  std::size_t length;

  bool is(Word other) const noexcept {
    return other.length == length && std::memcmp(begin, other.begin, length) == 0;
  }
};

Word word_until(const char* text, char end) noexcept;

// The number of a word, of words with bars between them; false if it is none of them.
bool find_word(const char* words, Word wanted, std::uint64_t& number) noexcept;

enum class Kind : std::uint8_t {
  choice,  // one of several words; the value is the number of the word
  number,
  size,          // a SizeOption: one of several words, or bytes, or a part of memory
  bytes,         // the same, without a part of memory
  milliseconds,  // the same, of milliseconds
};

// Which values an option takes.
struct Range {
  Kind kind;
  std::uint32_t most;  // of a number, bytes, or milliseconds; the least number is 0
  const char* words;   // of all but a number
};

// The value that a text means; false if it means none.
bool parse(const Range& range, const char* text, std::uint64_t& value) noexcept;

// A text in a place of its own, as long as any value or range.
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
