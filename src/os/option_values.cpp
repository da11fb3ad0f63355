#include "os/option_values.h"

#include <algorithm>
#include <iterator>

namespace ts {
namespace {

// Suffixes and their powers of two, largest first.
struct Unit {
  char letter;
  unsigned shift;
};
constexpr Unit units[] = {{'T', 40}, {'G', 30}, {'M', 20}, {'K', 10}};

// The word at this index in a list separated by bars; empty after the last.
Word word_at(const char* words, std::uint64_t number) noexcept {
  Word word = word_until(words, '|');
  while (number-- != 0) {
    const char* const end = word.begin + word.length;
    word = *end == '\0' ? Word{end, 0} : word_until(end + 1, '|');
  }
  return word;
}

// Parses the leading digits and advances the text. False if there are none, or if the number
// exceeds `most`.
bool parse_digits(const char*& text, std::uint64_t most, std::uint64_t& value) noexcept {
  const char* const begin = text;
  value = 0;
  for (; *text >= '0' && *text <= '9' && value <= most; ++text)
    value = value * 10 + static_cast<unsigned>(*text - '0');
  return text != begin && value <= most;
}

// Parses bytes with an optional suffix of `units` in either case, or a share of memory, 1% to 100%.
bool parse_size(const char* text, std::uint64_t& value) noexcept {
  std::uint64_t number = 0;
  if (!parse_digits(text, SizeOption::most_bytes, number) || number == 0) return false;
  if (*text == '%') {
    value = SizeOption::percent_bit | number;
    return text[1] == '\0' && number <= 100;
  }
  for (const Unit& unit : units) {
    if ((*text & ~0x20) != unit.letter) continue;
    if (number > SizeOption::most_bytes >> unit.shift) return false;
    number <<= unit.shift;
    ++text;
    break;
  }
  value = SizeOption::bytes_bit | number;
  return *text == '\0';
}

}  // namespace

Word word_until(const char* text, char end) noexcept {
  std::size_t length = 0;
  while (text[length] != '\0' && text[length] != end) ++length;
  return {text, length};
}

bool find_word(const char* words, Word wanted, std::uint64_t& number) noexcept {
  for (number = 0;; ++number) {
    const Word word = word_at(words, number);
    if (word.length == 0) return false;
    if (word.is(wanted)) return true;
  }
}

bool parse(const Range& range, const char* text, std::uint64_t& value) noexcept {
  if (range.kind == Kind::number) return parse_digits(text, range.most, value) && *text == '\0';
  const char* end = text;
  if (range.kind == Kind::milliseconds && parse_digits(end, range.most, value) && *end == '\0') {
    value |= SizeOption::bytes_bit;
    return true;
  }
  return find_word(range.words, word_until(text, '\0'), value) ||
         (range.kind == Kind::size && parse_size(text, value)) ||
         (range.kind == Kind::bytes && parse_size(text, value) && !SizeOption{value}.is_percent() &&
          SizeOption{value}.number() <= range.most);
}

void ShortText::add(Word word) noexcept {
  const std::size_t more = std::min(word.length, sizeof bytes_ - length_);
  std::memcpy(bytes_ + length_, word.begin, more);
  length_ += more;
}

void ShortText::add(std::uint64_t number) noexcept {
  char digits[20];
  std::size_t first = sizeof digits;
  do {
    digits[--first] = static_cast<char>('0' + number % 10);
    number /= 10;
  } while (number != 0);
  add({digits + first, sizeof digits - first});
}

ShortText text_of(const Range& range) noexcept {
  ShortText text;
  if (range.kind == Kind::number) {
    text.add({"0..", 3});
    text.add(range.most);
    return text;
  }
  text.add(word_until(range.words, '\0'));
  if (range.kind == Kind::milliseconds) {
    text.add(word_until("|MILLISECONDS", '\0'));
  } else if (range.kind != Kind::choice) {
    text.add(word_until("|BYTES", '\0'));
  }
  if (range.kind == Kind::size) text.add(word_until("|N%", '\0'));
  return text;
}

ShortText text_of(const Range& range, std::uint64_t value) noexcept {
  ShortText text;
  if (range.kind == Kind::number) {
    text.add(value);
    return text;
  }
  const SizeOption size{value};
  if (size.is_word()) {
    text.add(word_at(range.words, value));
    return text;
  }
  const std::uint64_t number = size.number();
  if (range.kind == Kind::milliseconds) {
    text.add(number);
    return text;
  }
  const Unit* unit = std::begin(units);
  while (unit != std::end(units) && number % (std::uint64_t{1} << unit->shift) != 0) ++unit;
  if (size.is_percent()) {
    text.add(number);
    text.add({"%", 1});
  } else if (unit == std::end(units)) {
    text.add(number);
  } else {
    text.add(number >> unit->shift);
    text.add({&unit->letter, 1});
  }
  return text;
}

}  // namespace ts
