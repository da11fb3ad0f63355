#include "os/options.h"

#include <sys/auxv.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <string_view>

#include "os/error_line.h"
#include "os/option_values.h"

namespace ts {
namespace {

using os::ErrorLine;

// Character arrays instead of pointers, which would need relocations at each start.
struct Option {
  char name[16];  // without the prefix
  Kind kind;
  std::uint8_t offset;  // of its value in Options, whose default is 0
  bool is_fixed;        // can only be set at start
  std::uint32_t most;   // for a number, bytes or milliseconds; the minimum is 0
  char words[32];       // for all kinds but a number
  char help[84];

  Range range() const noexcept { return {kind, most, words}; }
};

constexpr char prefix[] = "TSMALLOC_";
constexpr std::size_t prefix_length = sizeof prefix - 1;

constexpr Option table[] = {
    {"ON_MISUSE", Kind::choice, offsetof(Options, on_misuse), false, 0,
     "default|abort|continue|silent",
     "after reporting misuse; default: ignore foreign pointers, abort on all else"},
    {"BACKGROUND", Kind::choice, offsetof(Options, background), false, 0, "auto|off|on",
     "a thread that purges idle memory; auto: once the program has a second thread"},
    {"LIMIT", Kind::size, offsetof(Options, limit), false, 0, "auto|off",
     "purge free memory before the heap grows past this; auto: 90% of the cgroup limit"},
    {"HARD_LIMIT", Kind::size, offsetof(Options, hard_limit), false, 0, "off",
     "malloc fails beyond this; bytes (K, M, G, T), or N% of the cgroup or the machine"},
    {"PURGE_DELAY", Kind::milliseconds, offsetof(Options, purge_delay), false, 86'400'000,
     "auto|never|-1",
     "how long free memory is kept; auto: by its amount; 0: purge at once; -1: never"},
    {"THP", Kind::choice, offsetof(Options, huge_pages), false, 0, "auto|never|always",
     "huge pages; auto: where blocks fill them; always: for all fresh memory"},
    {"GUARD_SAMPLE", Kind::number, offsetof(Options, guard_sample), false, 1'000'000'000, "",
     "N: about one in N blocks taken from a slab gets a page of its own; 0: none"},
    {"PROFILE", Kind::bytes, offsetof(Options, profile), false, 1U << 30, "off|on|auto",
     "heap profile: bytes between samples; on: 512K; auto: 2000 samples a second"},
    {"PROFILE_AT", Kind::choice, offsetof(Options, profile_at), false, 0, "exit|peak|limit",
     "when to write the profile; peak: at exit, showing the peak; limit: near LIMIT"},
    {"AT_EXIT", Kind::choice, offsetof(Options, at_exit), false, 0, "check|leaks|off",
     "hardened library: check for damage at exit; leaks: also report blocks in use"},
    {"SHOW", Kind::choice, offsetof(Options, show), true, 0, "0|1",
     "1: print this list when a process starts"},
};

// This option is text and not a member of Options.
constexpr char output_name[] = "PROFILE_OUTPUT";
constinit char output[1024] = "tsmalloc.%p.pb";

// Variables that the instrumented builds, the tools and the lab read and document.
constexpr char others[] =
    "STRICT_OVERCOMMIT|LIBRARY_OF_LAB|COUNTERS|TRACKER|TRACKER_CALLS|RECORD|ALLOCATOR|BUILD_DIR|"
    "LAYOUT_PADDING|VEGA|PROFILE_OUTPUT";

constexpr std::uint64_t number_of_strict_overcommit = 0;  // index in that list

// Appends text from the environment, without characters that control a terminal.
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

// Finds an option by its name without prefix; null if unknown.
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

void append(ErrorLine& line, const ShortText& text) noexcept {
  line.text(text.begin(), text.length());
}

// Copies a text, zero-terminated: 0, or ERANGE if it does not fit.
int copy(const ShortText& from, char* text, std::size_t size) noexcept {
  if (from.length() >= size) return ERANGE;
  std::memcpy(text, from.begin(), from.length());
  text[from.length()] = '\0';
  return 0;
}

// The number of letters to change, remove or insert to turn one name into the other (Levenshtein,
// 1966), ignoring case.
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
  line.text(": unknown option, ignored; did you mean ");
  append_name(line, *nearest);
  line.text("? (TSMALLOC_SHOW=1 lists all)");
  line.write();
}

void warn_of_value(const Option& option, const char* text) noexcept {
  ErrorLine line;
  append_name(line, option);
  line.text("=");
  append_foreign(line, word_until(text, '\0'));
  line.text(": expected one of ");
  append(line, text_of(option.range()));
  line.text("; using the default, ");
  append(line, text_of(option.range(), 0));
  line.write();
}

// Whether a soft limit is above a hard one of the same unit. (If the units differ, the smaller
// limit takes effect.)
bool is_above(SizeOption soft, SizeOption hard) noexcept {
  return !soft.is_word() && !hard.is_word() && soft.is_percent() == hard.is_percent() &&
         soft.number() > hard.number();
}

// Whether setting the option would put the soft limit above the hard one.
bool would_be_above(const Option& option, std::uint64_t bits) noexcept {
  const auto value_if = [&](OptionBits& limit) noexcept {
    const bool is_this = &bits_of(option) == &limit.bits;
    return SizeOption{is_this ? bits : limit.bits.load(std::memory_order_relaxed)};
  };
  return is_above(value_if(current_options.limit), value_if(current_options.hard_limit));
}

// Whether the environment sets each option, and the output path.
using Given = bool[std::size(table) + 1];

void read_output(const char* path, bool& is_given) noexcept {
  const std::size_t length = std::strlen(path);
  if (is_given || length == 0) return;
  is_given = true;
  if (length < sizeof output) return static_cast<void>(std::memcpy(output, path, length + 1));
  ErrorLine{"TSMALLOC_PROFILE_OUTPUT is too long; using the default, tsmalloc.%p.pb"}.write();
}

// Reads a variable of the environment; the prefix is already skipped.
void read_option(const char* variable, Given& given) noexcept {
  const Word name = word_until(variable, '=');
  if (variable[name.length] == '\0') return;  // not a variable
  const char* const text = variable + name.length + 1;
  std::uint64_t value = 0;
  if (name.is(word_until(output_name, '\0'))) return read_output(text, given[std::size(table)]);
  const Option* const option = find_option(name);
  if (option == nullptr) {
    if (!find_word(others, name, value)) return warn_of_unknown(name);
    if (value == number_of_strict_overcommit)
      assumes_strict_overcommit.store(*text == '1', std::memory_order_relaxed);
    return;
  }
  bool& is_given = given[option - table];
  if (is_given || *text == '\0') return;  // the first one counts, as with getenv
  if (!parse(option->range(), text, value)) return warn_of_value(*option, text);
  is_given = true;
  bits_of(*option).store(value, std::memory_order_relaxed);
}

// Called once the whole environment has been read.
void correct_limits(Given& given) noexcept {
  if (!is_above(current_options.limit, current_options.hard_limit)) return;
  ErrorLine{"TSMALLOC_LIMIT is above TSMALLOC_HARD_LIMIT; using its default, auto"}.write();
  current_options.limit = SizeOption{0};
  given[find_option("LIMIT") - table] = false;
}

// docs/use.md is checked against these lines.
void show(const Given& given) noexcept {
  for (const Option& option : table) {
    ErrorLine line;
    append_name(line, option);
    line.text("=");
    append(line, text_of(option.range(), value_of(option)));
    line.text(given[&option - table] ? " (environment; " : " (default; ");
    append(line, text_of(option.range()));
    line.text("): ");
    line.text(option.help);
    line.write();
  }
}

}  // namespace

void read_options(const char* const* environment) noexcept {
  Given given = {};
  for (; environment != nullptr && *environment != nullptr; ++environment) {
    if (!has_prefix(*environment)) continue;
    if (::getauxval(AT_SECURE) != 0) return;
    read_option(*environment + prefix_length, given);
  }
  correct_limits(given);
  if (current_options.show != 0) show(given);
}

const char* profile_output() noexcept { return output; }

int change_option(const char* name, const char* value) noexcept {
  const Option* const option = name != nullptr ? find_option(name) : nullptr;
  if (option == nullptr) return ENOENT;
  if (option->is_fixed) return EPERM;
  std::uint64_t bits = 0;
  if (value == nullptr || !parse(option->range(), value, bits)) return EINVAL;
  if (would_be_above(*option, bits)) return EINVAL;
  bits_of(*option).store(bits, std::memory_order_relaxed);
  return 0;
}

const char* option_name(std::size_t number) noexcept {
  return number < std::size(table) ? table[number].name : nullptr;
}

int write_option_values(const char* name, char* text, std::size_t size) noexcept {
  const Option* const option = find_option(name);
  return option != nullptr ? copy(text_of(option->range()), text, size) : ENOENT;
}

int write_option(const char* name, char* text, std::size_t size) noexcept {
  const Option* const option = name != nullptr ? find_option(name) : nullptr;
  return option != nullptr ? copy(text_of(option->range(), value_of(*option)), text, size) : ENOENT;
}

}  // namespace ts
