// Interprets any bytes as an environment: variables with names like ours, or nearly, and any
// values. The table of options comes from the output of TSMALLOC_SHOW=1. The expected effect of
// each variable is computed independently and naively, and compared with what the library prints
// and the values it then has.
#include "os/options.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/input.h"
#include "fuzz/target.h"
#include "os/os.h"

namespace ts::fuzz {
namespace {

void require(bool holds, const char* what, const std::string& where = {}) {
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s: %s\n", what, where.c_str());
  std::abort();
}

// The library's output since the last call.
std::vector<std::string> said;

constexpr std::string_view start = "tsmalloc: ";
constexpr std::string_view prefix = "TSMALLOC_";
constexpr std::size_t most_of_a_line = 511;

struct Option {
  std::string standard;
  std::string range;  // words with bars between them, perhaps a size, bytes, or a time; or 0..N

  static constexpr std::string_view bytes_range = "|BYTES";
  static constexpr std::string_view part_range = "|N%";
  static constexpr std::string_view time_range = "|MILLISECONDS";
  static constexpr std::string_view most_milliseconds = "86400000";  // a day
  static constexpr unsigned long long most_bytes = 1ULL << 30;       // not as a share of memory

  bool is_number() const { return range.rfind("0..", 0) == 0; }
  bool is_size() const { return range.find(bytes_range) != range.npos; }
  bool is_time() const { return range.find(time_range) != range.npos; }
  bool may_be_part() const { return range.find(part_range) != range.npos; }
  std::vector<std::string> words() const {
    std::vector<std::string> all;
    std::istringstream text{range.substr(0, range.find(is_time() ? time_range : bytes_range))};
    for (std::string word; std::getline(text, word, '|');) all.push_back(word);
    return all;
  }
  // A size as printed: with the largest unit that makes it a whole number.
  std::string size_of(std::string text) const {
    const std::string letters = "KMGT";
    const char last = text.empty() ? '\0' : text.back();
    if (last == '\0') return "";
    const char capital = static_cast<char>(last & ~0x20);
    const std::size_t unit = last >= 'A' ? letters.find(capital) : letters.npos;
    if (unit != letters.npos || last == '%') text.pop_back();
    if (text.empty() || text.find_first_not_of("0123456789") != text.npos) return "";
    text.erase(0, std::min(text.find_first_not_of('0'), text.size()));
    if (text.empty() || text.size() > 15) return "";
    unsigned long long bytes = std::stoull(text);
    if (last == '%') return bytes <= 100 && may_be_part() ? text + "%" : "";
    const unsigned shift = unit == letters.npos ? 0 : 10 * (static_cast<unsigned>(unit) + 1);
    if (bytes > (1ULL << 48) >> shift) return "";
    bytes <<= shift;
    if (!may_be_part() && bytes > most_bytes) return "";
    std::size_t whole = 0;
    while (whole < letters.size() && bytes % 1024 == 0) {
      bytes /= 1024;
      ++whole;
    }
    return std::to_string(bytes) + (whole == 0 ? "" : letters.substr(whole - 1, 1));
  }
  // The value of a text, or nothing.
  std::string value_of(const std::string& text) const {
    if (is_number()) return number_of(text, range.substr(3));
    const std::vector<std::string> all = words();
    if (std::find(all.begin(), all.end(), text) != all.end()) return text;
    if (is_time()) return number_of(text, most_milliseconds);
    return is_size() ? size_of(text) : "";
  }
  static std::string number_of(const std::string& text, std::string_view most) {
    if (text.empty() || text.find_first_not_of("0123456789") != std::string::npos) return "";
    const std::string digits = text.substr(std::min(text.find_first_not_of('0'), text.size()));
    if (digits.empty()) return "0";
    const bool is_too_large =
        digits.size() > most.size() || (digits.size() == most.size() && digits > most);
    return is_too_large ? "" : digits;
  }
};

std::map<std::string, Option> table;

// Environments are arrays of pointers to memory of exactly their length.
class Environment {
 public:
  void add(const std::string& variable) {
    owned_.push_back(std::make_unique<char[]>(variable.size() + 1));
    std::memcpy(owned_.back().get(), variable.c_str(), variable.size() + 1);
    pointers_.insert(pointers_.end() - 1, owned_.back().get());
  }
  std::vector<std::string> read() const {
    said.clear();
    read_options(pointers_.data());
    return said;
  }

 private:
  std::vector<std::unique_ptr<char[]>> owned_;
  std::vector<const char*> pointers_{nullptr};
};

struct Shown {
  std::string name;
  std::string value;
  std::string source;
  std::string range;
};

// TSMALLOC_NAME=value (source; range): help
Shown take_apart(const std::string& line) {
  const std::size_t name = start.size() + prefix.size();
  const std::size_t value = line.find('=');
  const std::size_t source = line.find(" (", value);
  const std::size_t range = line.find("; ", source);
  const std::size_t end = line.find("): ", range);
  require(line.rfind(std::string{start} + std::string{prefix}, 0) == 0 && end != line.npos,
          "this shows no option", line);
  return {line.substr(name, value - name), line.substr(value + 1, source - value - 1),
          line.substr(source + 2, range - source - 2), line.substr(range + 2, end - range - 2)};
}

std::vector<Shown> show() {
  Environment environment;
  environment.add("TSMALLOC_SHOW=1");
  std::vector<Shown> all;
  for (const std::string& line : environment.read()) all.push_back(take_apart(line));
  return all;
}

// Levenshtein distance, ignoring case.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> rows(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        rows[i][j] = i + j;
        continue;
      }
      const bool is_same = (a[i - 1] & ~0x20) == (b[j - 1] & ~0x20);
      rows[i][j] = std::min(
          {rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + (is_same ? 0 : 1)});
    }
  }
  return rows[a.size()][b.size()];
}

// ---- an input as an environment ----

const std::vector<std::string> read_elsewhere = {"COUNTERS",       "TRACKER",   "TRACKER_CALLS",
                                                 "RECORD",         "ALLOCATOR", "BUILD_DIR",
                                                 "LAYOUT_PADDING", "VEGA"};

std::string text_of(Input& input) {
  std::string text(input.byte() % 24, ' ');
  for (char& letter : text) letter = static_cast<char>(input.byte());
  std::erase(text, '\0');
  return text;
}

// Changes, drops or inserts some letters, or makes it very long.
std::string edit(std::string text, Input& input) {
  for (unsigned edits = input.byte() % 4; edits != 0; --edits) {
    const std::size_t at = input.below(text.size() + 1);
    const char letter = static_cast<char>(input.byte() % 255 + 1);
    switch (input.byte() % 4) {
      case 0:
        if (at < text.size()) text[at] = letter;
        break;
      case 1:
        text.erase(at, 1);
        break;
      case 2:
        text.insert(at, 1, letter);
        break;
      default:
        text.insert(at, input.below(600), letter);
    }
  }
  return text;
}

const std::string& known_name(Input& input) {
  auto option = table.begin();
  std::advance(option, input.byte() % table.size());
  return option->first;
}

std::string value_for(const std::string& name, Input& input) {
  const auto option = table.find(name);
  switch (input.byte() % 8) {
    case 0:
      return text_of(input);
    case 1:
      return "";
    case 2:
      return std::to_string(input.below(65536) * input.below(65536));
    case 3:
      return std::string(input.byte(), '0') + std::to_string(input.byte());
    case 4:
      return std::string(1 + input.byte(), static_cast<char>('0' + input.byte() % 10));
    default:
      break;
  }
  if (option == table.end()) return "1";
  if (option->second.is_number())
    return std::to_string(std::stoull(option->second.range.substr(3)) + input.byte() % 3 - 1);
  std::vector<std::string> words = option->second.words();
  if (option->second.is_size()) {
    for (const char* const end : {"", "K", "m", "G", "T", "%"})
      words.push_back(std::to_string(input.byte()) + end);
  }
  if (option->second.is_time()) {
    words.push_back(std::to_string(input.byte()));
    words.push_back(std::to_string(86'400'000 + input.byte() % 3 - 1));
  }
  const std::string& word = words[input.byte() % words.size()];
  return input.byte() % 4 == 0 ? edit(word, input) : word;
}

std::string variable_of(Input& input) {
  const unsigned how = input.byte() % 8;
  if (how == 0) return text_of(input);
  if (how == 1) return std::string{prefix} + text_of(input);
  if (how == 2)
    return std::string{prefix} + read_elsewhere[input.byte() % read_elsewhere.size()] + "=" +
           text_of(input);
  const std::string& name = known_name(input);
  if (how == 3) return edit(std::string{prefix} + name + "=" + value_for(name, input), input);
  if (how == 4) return std::string{prefix} + edit(name, input) + "=" + value_for(name, input);
  return std::string{prefix} + name + "=" + value_for(name, input);
}

// ---- the expected effect ----

struct Expected {
  std::map<std::string, std::string> given;
  std::vector<std::string> beginnings;  // of warnings, in this order
  std::vector<std::string> unknown;     // the name that each of them is about, or ""
};

// Characters that could control a terminal are not printed.
std::string printable(std::string text) {
  for (char& letter : text) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return text;
}

void expect_variable(const std::string& variable, Expected& expected) {
  if (variable.rfind(prefix, 0) != 0) return;
  const std::size_t equals = variable.find('=');
  if (equals == variable.npos) return;
  const std::string name = variable.substr(prefix.size(), equals - prefix.size());
  const std::string text = variable.substr(equals + 1);
  const std::string said_first = std::string{start} + std::string{prefix} + printable(name);
  const auto option = table.find(name);
  if (option == table.end()) {
    if (std::find(read_elsewhere.begin(), read_elsewhere.end(), name) != read_elsewhere.end())
      return;
    expected.beginnings.push_back(said_first + ": unknown option");
    expected.unknown.push_back(name);
    return;
  }
  if (text.empty() || expected.given.count(name) != 0) return;
  const std::string value = option->second.value_of(text);
  if (!value.empty()) {
    expected.given[name] = value;
    return;
  }
  expected.beginnings.push_back(said_first + "=" + printable(text) + ": expected one of " +
                                option->second.range);
  expected.unknown.emplace_back();
}

// Whether a soft limit is larger than a hard one of the same unit; both as printed.
bool is_above(const std::string& soft, const std::string& hard) {
  const auto is_size = [](const std::string& text) { return text[0] >= '0' && text[0] <= '9'; };
  if (!is_size(soft) || !is_size(hard)) return false;
  if ((soft.back() == '%') != (hard.back() == '%')) return false;
  const auto number = [](const std::string& text) {
    const std::size_t unit = std::string{"KMGT"}.find(text.back());
    return std::stoull(text) << (unit == std::string::npos ? 0 : 10 * (unit + 1));
  };
  return number(soft) > number(hard);
}

void expect_order_of_limits(Expected& expected) {
  const auto soft = expected.given.find("LIMIT");
  const auto hard = expected.given.find("HARD_LIMIT");
  if (soft == expected.given.end() || hard == expected.given.end()) return;
  if (!is_above(soft->second, hard->second)) return;
  expected.given.erase(soft);
  expected.beginnings.push_back(std::string{start} + "TSMALLOC_LIMIT is above");
  expected.unknown.emplace_back();
}

void require_nearest(const std::string& line, const std::string& name) {
  constexpr std::string_view words = "did you mean TSMALLOC_";
  const std::size_t at = line.find(words, start.size() + prefix.size() + name.size());
  const std::size_t end = line.find("? (TSMALLOC_SHOW=1", at);
  if (end == line.npos) return require(line.size() == most_of_a_line, "no nearest", line);
  const std::string nearest = line.substr(at + words.size(), end - at - words.size());
  require(table.count(nearest) != 0, "the nearest is no option", line);
  for (const auto& [other, option] : table)
    require(distance(name, nearest) <= distance(name, other), "another is nearer", line);
}

std::size_t warnings = 0;
std::size_t given_values = 0;
std::size_t changes = 0;

void try_environment(const std::vector<std::string>& variables) {
  Environment environment;
  Expected expected;
  for (const std::string& variable : variables) {
    environment.add(variable);
    expect_variable(variable, expected);
  }
  expect_order_of_limits(expected);
  current_options = {};
  std::vector<std::string> lines = environment.read();
  const bool is_shown = expected.given.count("SHOW") != 0 && expected.given["SHOW"] == "1";
  require(lines.size() == expected.beginnings.size() + (is_shown ? table.size() : 0),
          "another number of lines", std::to_string(lines.size()));
  for (std::size_t i = 0; i < expected.beginnings.size(); ++i) {
    const std::string beginning = expected.beginnings[i].substr(0, most_of_a_line);
    require(lines[i].rfind(beginning, 0) == 0, "another warning than", beginning);
    if (!expected.unknown[i].empty()) require_nearest(lines[i], expected.unknown[i]);
  }
  warnings += expected.beginnings.size();
  given_values += expected.given.size();
  for (std::size_t i = expected.beginnings.size(); i < lines.size(); ++i) {
    const Shown shown = take_apart(lines[i]);
    const bool is_given = expected.given.count(shown.name) != 0;
    require(shown.source == (is_given ? "environment" : "default"), "another source", lines[i]);
  }
  for (const Shown& shown : show()) {
    const auto given = expected.given.find(shown.name);
    if (shown.name == "SHOW") continue;  // is being set
    require(
        shown.value == (given != expected.given.end() ? given->second : table[shown.name].standard),
        "another value", shown.name + "=" + shown.value);
  }
}

// The current value of an option.
std::string now(const char* name) {
  char text[32] = "";
  write_option(name, text, sizeof text);
  return text;
}

// A change of a running option: either refused without any effect, or done.
void try_change(Input& input) {
  const std::string& known = known_name(input);
  const bool is_edited = input.byte() % 4 == 0;
  const std::string name = is_edited ? edit(known, input) : known;
  const std::string value = value_for(known, input);
  const std::string full = input.byte() % 2 == 0 ? name : std::string{prefix} + name;
  // (The prefix may already be at the beginning of what it is added to.)
  const std::string bare = full.rfind(prefix, 0) == 0 ? full.substr(prefix.size()) : full;
  const auto option = table.find(bare);
  const std::string meant = option != table.end() ? option->second.value_of(value) : "";
  const std::string before = now(full.c_str());
  const bool is_out_of_order = (bare == "LIMIT" && is_above(meant, now("HARD_LIMIT"))) ||
                               (bare == "HARD_LIMIT" && is_above(now("LIMIT"), meant));
  const int expected = option == table.end() ? ENOENT
                       : bare == "SHOW"      ? EPERM
                       : meant.empty()       ? EINVAL
                       : is_out_of_order     ? EINVAL
                                             : 0;
  require(change_option(full.c_str(), value.c_str()) == expected, "another result of a change",
          full + "=" + value);
  if (option == table.end()) return;
  const std::string after = expected == 0 ? meant : before;
  const std::size_t size = after.size();
  const std::unique_ptr<char[]> exact{new char[size + 1]};
  require(write_option(full.c_str(), exact.get(), size) == ERANGE, "it fits without its end",
          after);
  require(write_option(full.c_str(), exact.get(), size + 1) == 0, "it does not fit", after);
  require(after == exact.get(), "another value after a change", full + "=" + value);
  changes += expected == 0 ? 1 : 0;
}

}  // namespace

bool report_totals() {
  std::printf("%zu values, %zu warnings, %zu changes\n", given_values, warnings, changes);
  return given_values != 0 && warnings != 0 && changes != 0;
}

}  // namespace ts::fuzz

// How the library writes to standard error, and aborts.
namespace ts::os {

int write(int, const char* text, std::size_t bytes) noexcept {
  fuzz::require(bytes != 0 && text[bytes - 1] == '\n', "a line without an end");
  fuzz::require(bytes <= fuzz::most_of_a_line + 1, "a line is too long");
  fuzz::said.emplace_back(text, bytes - 1);
  return 0;
}

void abort_process() noexcept { std::abort(); }

}  // namespace ts::os

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace ts::fuzz;
  for (const Shown& shown : show()) {
    const std::string standard = shown.name == "SHOW" ? "0" : shown.value;
    table[shown.name] = {standard, shown.range};
  }
  require(table.size() > 1, "TSMALLOC_SHOW=1 shows no options");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ts::fuzz::Input input{data, size};
  std::vector<std::string> variables(1 + input.byte() % 12);
  for (std::string& variable : variables) variable = ts::fuzz::variable_of(input);
  ts::fuzz::try_environment(variables);
  for (unsigned left = input.byte() % 8; left != 0; --left) ts::fuzz::try_change(input);
  return 0;
}
