#include "os/options.h"

#include <sys/auxv.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>

#include "os/error_line.h"

namespace ts {
namespace {

using os::ErrorLine;

enum class Kind : std::uint8_t {
  choice,  // one of several words; the value is the number of the word
  number,
};

// Characters, not pointers to them, which would be relocations at each start.
struct Option {
  char name[16];  // without the prefix
  Kind kind;
  std::uint8_t offset;  // of its value in Options, whose default is 0
  bool is_fixed;        // after the start
  std::uint32_t most;   // of a number; the least is 0
  char words[32];       // of a choice
  char help[84];
};

constexpr char prefix[] = "TSMALLOC_";
constexpr std::size_t prefix_length = sizeof prefix - 1;

constexpr Option table[] = {
    {"ON_MISUSE", Kind::choice, offsetof(Options, on_misuse), false, 0,
     "default|abort|continue|silent",
     "after misuse was reported; default: leave a foreign pointer alone, else abort"},
    {"BACKGROUND", Kind::choice, offsetof(Options, background), false, 0, "auto|off|on",
     "a thread gives idle memory back; auto: once the program has a second thread"},
    {"GUARD_SAMPLE", Kind::number, offsetof(Options, guard_sample), false, 1'000'000'000, "",
     "N: one in about N blocks that leave a slab is on a page of its own; 0: none"},
    {"AT_EXIT", Kind::choice, offsetof(Options, at_exit), false, 0, "check|leaks|off",
     "hardened library: look for damage at the end; leaks: and tell what is in use"},
    {"SHOW", Kind::choice, offsetof(Options, show), true, 0, "0|1",
     "1: print this list at the start of each process"},
};

// Variables that the counted libraries, the tools and the lab read and describe.
constexpr char others[] = "COUNTERS|COUNT_DIR|LEDGER|RECORD|ALLOCATOR|BUILD_DIR|LAYOUT_PADDING";

// A part of a text.
struct Word {
  const char* begin;
  std::size_t length;

  bool is(Word other) const noexcept {
    return other.length == length && std::memcmp(begin, other.begin, length) == 0;
  }
};

Word word_until(const char* text, char end) noexcept {
  std::size_t length = 0;
  while (text[length] != '\0' && text[length] != end) ++length;
  return {text, length};
}

// A word of the environment, without characters that control a terminal.
void append_foreign(ErrorLine& line, Word word) noexcept {
  for (const char& letter : std::string_view{word.begin, word.length})
    line.text(letter >= ' ' && letter <= '~' ? &letter : "?", 1);
}

void append_name(ErrorLine& line, const Option& option) noexcept {
  line.text(prefix);
  line.text(option.name);
}

std::atomic<std::uint64_t>& bits_of(const Option& option) noexcept {
  char* const options = reinterpret_cast<char*>(&current_options);
  return reinterpret_cast<OptionBits*>(options + option.offset)->bits;
}

std::uint64_t value_of(const Option& option) noexcept {
  return bits_of(option).load(std::memory_order_relaxed);
}

// The option of this name, which has no prefix; null if there is none.
const Option* find_option(Word name) noexcept {
  for (const Option& option : table) {
    if (name.is(word_until(option.name, '\0'))) return &option;
  }
  return nullptr;
}

bool has_prefix(const char* name) noexcept {
  std::size_t same = 0;
  while (same < prefix_length && name[same] == prefix[same]) ++same;
  return same == prefix_length;
}

const Option* find_option(const char* name) noexcept {
  return find_option(word_until(has_prefix(name) ? name + prefix_length : name, '\0'));
}

// The word of this number, of words with bars between them; behind the last one there is an empty
// one.
Word word_at(const char* words, std::uint64_t number) noexcept {
  Word word = word_until(words, '|');
  while (number-- != 0) {
    const char* const end = word.begin + word.length;
    word = *end == '\0' ? Word{end, 0} : word_until(end + 1, '|');
  }
  return word;
}

// The number of a word; false if it is none of them.
bool find_word(const char* words, Word wanted, std::uint64_t& number) noexcept {
  for (number = 0;; ++number) {
    const Word word = word_at(words, number);
    if (word.length == 0) return false;
    if (word.is(wanted)) return true;
  }
}

bool parse_number(const Option& option, const char* text, std::uint64_t& value) noexcept {
  const char* const begin = text;
  value = 0;
  for (; *text >= '0' && *text <= '9' && value <= option.most; ++text)
    value = value * 10 + static_cast<unsigned>(*text - '0');
  return *text == '\0' && text != begin && value <= option.most;
}

bool parse(const Option& option, const char* text, std::uint64_t& value) noexcept {
  return option.kind == Kind::choice ? find_word(option.words, word_until(text, '\0'), value)
                                     : parse_number(option, text, value);
}

// Which values it takes.
void append_range(ErrorLine& line, const Option& option) noexcept {
  if (option.kind == Kind::choice) return line.text(option.words);
  line.text("0..");
  line.number(option.most);
}

// Of any class with the members of ErrorLine that make a line.
void append_value(auto& line, const Option& option, std::uint64_t value) noexcept {
  if (option.kind == Kind::number) return line.number(value);
  const Word word = word_at(option.words, value);
  line.text(word.begin, word.length);
}

// How many letters have to be changed, left out or put in to make one name of the other
// (Levenshtein, 1966), capitals or not.
std::size_t distance(Word a, const char* b) noexcept {
  constexpr std::size_t longest = sizeof Option::name;
  const auto letter = [](char c) { return c & ~0x20; };
  const std::size_t columns = std::strlen(b);
  std::size_t row[longest + 1];
  for (std::size_t j = 0; j <= columns; ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.length; ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 1; j <= columns; ++j) {
      const std::size_t replaced = diagonal + (letter(a.begin[i - 1]) != letter(b[j - 1]) ? 1 : 0);
      const std::size_t put_in = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      diagonal = row[j];
      row[j] = replaced < put_in ? replaced : put_in;
    }
  }
  return row[columns];
}

void warn_of_unknown(Word name) noexcept {
  const Option* nearest = table;
  for (const Option& option : table) {
    if (distance(name, option.name) < distance(name, nearest->name)) nearest = &option;
  }
  ErrorLine line;
  line.text(prefix);
  append_foreign(line, name);
  line.text(" is no option, and has no effect; the nearest is ");
  append_name(line, *nearest);
  line.text(" (TSMALLOC_SHOW=1 lists all)");
  line.write();
}

void warn_of_value(const Option& option, const char* text) noexcept {
  ErrorLine line;
  append_name(line, option);
  line.text("=");
  append_foreign(line, word_until(text, '\0'));
  line.text(" is none of ");
  append_range(line, option);
  line.text("; the default is used, ");
  append_value(line, option, 0);
  line.write();
}

// Whether the environment sets each option.
using Given = bool[std::size(table)];

// A variable of the environment, behind the prefix.
void read_option(const char* variable, Given& given) noexcept {
  const Word name = word_until(variable, '=');
  if (variable[name.length] == '\0') return;  // no variable at all
  const char* const text = variable + name.length + 1;
  std::uint64_t value = 0;
  const Option* const option = find_option(name);
  if (option == nullptr) {
    if (!find_word(others, name, value)) warn_of_unknown(name);
    return;
  }
  bool& is_given = given[option - table];
  if (is_given || *text == '\0') return;  // the first counts, as for getenv
  if (!parse(*option, text, value)) return warn_of_value(*option, text);
  is_given = true;
  bits_of(*option).store(value, std::memory_order_relaxed);
}

// docs/use.md is checked against these lines.
void show(const Given& given) noexcept {
  for (const Option& option : table) {
    ErrorLine line;
    append_name(line, option);
    line.text("=");
    append_value(line, option, value_of(option));
    line.text(given[&option - table] ? " (environment; " : " (default; ");
    append_range(line, option);
    line.text("): ");
    line.text(option.help);
    line.write();
  }
}

// A text in a place of so many bytes.
class Text {
 public:
  Text(char* begin, std::size_t size) noexcept : begin_{begin}, size_{size} {}
  void text(const char* begin, std::size_t bytes) noexcept {
    for (std::size_t i = 0; i < bytes; ++i, ++length_) {
      if (length_ < size_) begin_[length_] = begin[i];
    }
  }
  void number(std::uint64_t value) noexcept {
    char digits[20];
    std::size_t first = sizeof digits;
    do {
      digits[--first] = static_cast<char>('0' + value % 10);
      value /= 10;
    } while (value != 0);
    text(digits + first, sizeof digits - first);
  }
  std::size_t length() const noexcept { return length_; }

 private:
  char* begin_;
  std::size_t size_;
  std::size_t length_ = 0;
};

}  // namespace

void read_options(const char* const* environment) noexcept {
  Given given = {};
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (!has_prefix(*environment)) continue;
    if (::getauxval(AT_SECURE) != 0) return;
    read_option(*environment + prefix_length, given);
  }
  if (current_options.show != 0) show(given);
}

int change_option(const char* name, const char* value) noexcept {
  const Option* const option = name != nullptr ? find_option(name) : nullptr;
  if (option == nullptr) return ENOENT;
  if (option->is_fixed) return EPERM;
  std::uint64_t bits = 0;
  if (value == nullptr || !parse(*option, value, bits)) return EINVAL;
  bits_of(*option).store(bits, std::memory_order_relaxed);
  return 0;
}

int write_option(const char* name, char* text, std::size_t size) noexcept {
  const Option* const option = name != nullptr ? find_option(name) : nullptr;
  if (option == nullptr) return ENOENT;
  char value[64];
  Text written{value, sizeof value};
  append_value(written, *option, value_of(*option));
  written.text("", 1);
  if (written.length() > size) return ERANGE;
  std::memcpy(text, value, written.length());
  return 0;
}

}  // namespace ts
