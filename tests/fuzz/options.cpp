// Interprets any bytes as an environment: variables with names like ours, or nearly, and any values.
// The library reads nothing behind them and prints a few whole lines. A variable has the effect that
// change_option() has, which refuses a value without any effect or makes it the value that
// write_option() writes. (misuse/options.py knows what each value means.)
#include "os/options.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
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

const std::string prefix = "TSMALLOC_";
constexpr std::size_t most_of_a_line = 511;
// Variables of the lab and the tools.
const std::vector<std::string> read_elsewhere = {"COUNTERS",       "TRACKER",   "TRACKER_CALLS",
                                                 "RECORD",         "ALLOCATOR", "BUILD_DIR",
                                                 "LAYOUT_PADDING", "VEGA"};

struct Option {
  std::string name;
  std::vector<std::string> words;  // that it takes, and numbers at its limits
};
std::vector<Option> options;

// Words with bars between them, perhaps a size, bytes, or a time; or 0..N.
std::vector<std::string> words_of(const std::string& range) {
  if (range.rfind("0..", 0) == 0) {
    const unsigned long long most = std::stoull(range.substr(3));
    return {"0", std::to_string(most), std::to_string(most + 1)};
  }
  std::vector<std::string> words;
  std::istringstream text{range};
  for (std::string word; std::getline(text, word, '|');) {
    if (word == "BYTES") {
      words.insert(words.end(), {"5", "64K", "30m", "7G", "256T", "257T", "0"});
    } else if (word == "N%") {
      words.insert(words.end(), {"0%", "40%", "100%", "101%"});
    } else if (word == "MILLISECONDS") {
      words.insert(words.end(), {"0", "250", "86400000", "86400001"});
    } else {
      words.push_back(word);
    }
  }
  return words;
}

// The library's output since the last read_environment().
std::vector<std::string> said;

// Environments are arrays of pointers to memory of exactly their length.
void read_environment(const std::vector<std::string>& variables) {
  std::vector<std::unique_ptr<char[]>> owned;
  std::vector<const char*> pointers;
  for (const std::string& variable : variables) {
    owned.push_back(std::make_unique<char[]>(variable.size() + 1));
    std::memcpy(owned.back().get(), variable.c_str(), variable.size() + 1);
    pointers.push_back(owned.back().get());
  }
  pointers.push_back(nullptr);
  said.clear();
  current_options = {};
  read_options(pointers.data());
}

std::string value_of(const std::string& name) {
  char text[32] = "";
  require(write_option(name.c_str(), text, sizeof text) == 0, "an option has no value", name);
  const std::size_t size = std::strlen(text);
  const std::unique_ptr<char[]> exact{new char[size + 1]};
  require(write_option(name.c_str(), exact.get(), size) == ERANGE, "it fits without its end", text);
  require(write_option(name.c_str(), exact.get(), size + 1) == 0, "it does not fit", text);
  return exact.get();
}
std::vector<std::string> all_values() {
  std::vector<std::string> values;
  for (const Option& option : options) values.push_back(value_of(option.name));
  return values;
}

// ---- an input as an environment ----

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

const Option& known_option(Input& input) { return options[input.byte() % options.size()]; }

std::string value_for(const Option& option, Input& input) {
  switch (input.byte() % 8) {
    case 0:
      return text_of(input);
    case 1:
      return "";
    case 2:
      return std::to_string(input.below(65536) * input.below(65536));
    case 3:
      return std::string(input.byte(), '0') + std::to_string(input.byte());
    default:
      break;
  }
  const std::string& word = option.words[input.byte() % option.words.size()];
  return input.byte() % 4 == 0 ? edit(word, input) : word;
}

std::string variable_of(Input& input) {
  const unsigned how = input.byte() % 8;
  if (how == 0) return text_of(input);
  if (how == 1) return prefix + text_of(input);
  if (how == 2)
    return prefix + read_elsewhere[input.byte() % read_elsewhere.size()] + "=" + text_of(input);
  const Option& option = known_option(input);
  const std::string value = value_for(option, input);
  if (how == 3) return edit(prefix + option.name + "=" + value, input);
  return prefix + (how == 4 ? edit(option.name, input) : option.name) + "=" + value;
}

// ---- what must hold ----

std::size_t warnings = 0;
std::size_t changes = 0;

void try_environment(const std::vector<std::string>& variables) {
  read_environment(variables);
  // TSMALLOC_SHOW=1 prints them all, and one line may be about two variables, the limits.
  const std::size_t most_lines = variables.size() + options.size() + 1;
  require(said.size() <= most_lines, "too many lines", std::to_string(said.size()));
  for (const std::string& line : said)
    require(line.rfind("tsmalloc: " + prefix, 0) == 0, "a line about no variable", line);
  all_values();
}

// A value that is refused has no effect.
void try_change(Input& input) {
  const Option& option = known_option(input);
  const std::string name = input.byte() % 4 == 0 ? edit(option.name, input) : option.name;
  const std::string value = value_for(option, input);
  const std::string full = input.byte() % 2 == 0 ? name : prefix + name;
  const std::vector<std::string> before = all_values();
  const int error = change_option(full.c_str(), value.c_str());
  require(error == 0 || error == ENOENT || error == EINVAL || error == EPERM, "another error",
          full);
  require(error == 0 || all_values() == before, "a refused change has an effect", full);
  if (name == option.name) {
    require(error != ENOENT, "an option is unknown", name);
    require((error == EPERM) == (name == "SHOW"), "what can only be set at start", name);
  }
  changes += error == 0 ? 1 : 0;
}

// A variable by itself has the same effect as a change; otherwise there is one line about it. The
// value that then holds is accepted again.
void try_both(Input& input) {
  const Option& option = known_option(input);
  const std::string value = value_for(option, input);
  if (option.name == "SHOW" || value.empty()) return;
  current_options = {};
  const int error = change_option(option.name.c_str(), value.c_str());
  require(error == 0 || error == EINVAL, "another error", option.name);
  const std::vector<std::string> changed = all_values();
  const std::string variable = prefix + option.name + "=" + value;
  read_environment({variable});
  require(all_values() == changed, "a variable has another effect than a change", option.name);
  require(said.size() == (error == 0 ? 0 : 1), "an error is told once", option.name);
  warnings += said.size();
  read_environment({variable, prefix + option.name + "=" + value_for(option, input)});
  require(error != 0 || all_values() == changed, "of two variables the first counts", option.name);
  const std::string now = value_of(option.name);
  require(change_option(option.name.c_str(), now.c_str()) == 0, "a value is not accepted", now);
  require(value_of(option.name) == now, "a value becomes another", now);
}

}  // namespace

bool report_totals() {
  std::printf("%zu warnings, %zu changes\n", warnings, changes);
  return warnings != 0 && changes != 0;
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
  char range[128];
  for (std::size_t i = 0; const char* const name = ts::option_name(i); ++i) {
    require(ts::write_option_values(name, range, sizeof range) == 0, "an option has no values");
    options.push_back({name, words_of(range)});
  }
  require(options.size() > 1, "there are no options");
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ts::fuzz;
  Input input{data, size};
  std::vector<std::string> variables(1 + input.byte() % 12);
  for (std::string& variable : variables) variable = variable_of(input);
  try_environment(variables);
  for (unsigned left = input.byte() % 8; left != 0; --left) try_change(input);
  try_both(input);
  return 0;
}
