// See arguments.h.
#include "trace/arguments.h"

#include <charconv>
#include <cstring>

namespace ts::trace {

Parsed::Parsed(const char* command, Arguments arguments, std::initializer_list<Option> options)
    : command_{command} {
  bool is_option_possible = true;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word{arguments[i]};
    if (!is_option_possible || !word.starts_with("-") || word == "-") {
      files_.push_back(arguments[i]);
      continue;
    }
    if (word == "--") {
      is_option_possible = false;
      continue;
    }
    const std::size_t equals = word.find('=');
    const std::string name{word.substr(0, equals)};
    const Option* known = nullptr;
    for (const Option& option : options) {
      if (name == option.name) known = &option;
    }
    const bool is_help = name == "--help";
    if (known == nullptr && !is_help) fail("there is no option '" + name + "'");
    const bool wants_value = !is_help && known->value == Option::Value::wanted;
    const char* value = nullptr;
    if (equals != std::string_view::npos) {
      if (!wants_value) fail(name + " takes no value");
      value = arguments[i] + equals + 1;
    } else if (wants_value) {
      if (++i == arguments.size()) fail(name + " wants a value");
      value = arguments[i];
    }
    given_.push_back({name, value});
  }
}

void Parsed::fail(const std::string& what) const {
  throw UsageError{what + ". `trace " + command_ + " --help` lists the options."};
}

const Parsed::Given* Parsed::find(const char* name) const {
  const Given* found = nullptr;
  for (const Given& given : given_) {
    if (given.name == name) found = &given;
  }
  return found;
}

bool Parsed::has(const char* name) const { return find(name) != nullptr; }

const char* Parsed::text(const char* name, const char* fallback) const {
  const Given* const given = find(name);
  return given == nullptr ? fallback : given->value;
}

std::uint64_t Parsed::number(const char* name, std::uint64_t fallback, std::uint64_t most) const {
  const char* const value = text(name, nullptr);
  if (value == nullptr) return fallback;
  std::uint64_t number = 0;
  const char* const end = value + std::strlen(value);
  const auto [stop, error] = std::from_chars(value, end, number);
  if (error != std::errc{} || stop != end || number > most) {
    fail(std::string{name} + " wants a whole number from 0 to " + std::to_string(most) + ", not '" +
         value + "'");
  }
  return number;
}

std::string Parsed::file() const {
  if (files_.empty()) fail("name the trace to read");
  if (files_.size() > 1) fail("only one trace can be read at a time");
  return files_.front();
}

}  // namespace ts::trace
