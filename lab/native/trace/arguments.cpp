#include "trace/arguments.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "trace/format/event.h"

namespace ts::trace {

Parsed::Parsed(const Command& command, Arguments arguments) : command_{command} {
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
    const std::string_view name = word.substr(0, equals);
    const auto is_known = [&](const std::string& option) {
      return std::ranges::find(command.options, option) != command.options.end();
    };
    const bool wants_value = is_known(std::string{name} + '=');
    if (!wants_value && name != "--help" && !is_known(std::string{name})) {
      fail("there is no option '" + std::string{name} + "'");
    }
    const char* value = nullptr;
    if (equals != std::string_view::npos) {
      if (!wants_value) fail(std::string{name} + " takes no value");
      value = arguments[i] + equals + 1;
    } else if (wants_value) {
      if (++i == arguments.size()) fail(std::string{name} + " wants a value");
      value = arguments[i];
    }
    given_[name] = value;
  }
}

void Parsed::fail(const std::string& what) const {
  throw UsageError{what + ". `trace " + command_.name + " --help` lists the options."};
}

const char* Parsed::text(std::string_view name, const char* fallback) const {
  const auto given = given_.find(name);
  return given == given_.end() ? fallback : given->second;
}

std::uint64_t Parsed::number(std::string_view name, std::uint64_t fallback,
                             std::uint64_t most) const {
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

std::optional<std::uint32_t> Parsed::image() const {
  if (!has("--image")) return std::nullopt;
  return static_cast<std::uint32_t>(number("--image", 0, max_images - 1));
}

std::string Parsed::file() const {
  if (files_.empty()) fail("name the trace to read");
  if (files_.size() > 1) fail("only one trace can be read at a time");
  return files_.front();
}

}  // namespace ts::trace
