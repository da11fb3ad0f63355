// The sub-commands of `trace`, and how they read their options.
//
// Why it exists: every sub-command takes options of the same few forms, and says the same when they
// are wrong. What it refuses to do: short options, and options with optional values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ts::trace {

using Arguments = std::span<char* const>;

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Parsed;

// Each has a file of its name, or a folder.
struct Command {
  const char* name;
  const char* summary;
  std::string_view help;
  std::span<const std::string_view> options;  // "--flag", or "--name=" where a value is wanted
  // Returns the exit status. May throw Error, or UsageError; trace.cpp tells the user.
  int (*run)(const Parsed& parsed);
};
extern const Command print_command;
extern const Command info_command;
extern const Command check_command;
extern const Command analyze_command;
extern const Command plan_command;

// `--name VALUE`, `--name=VALUE` and `--flag` in any order, mixed with file names; `--` ends
// options.
class Parsed {
 public:
  // Throws UsageError for an option that the command does not have. `--help` is always known.
  Parsed(const Command& command, Arguments arguments);

  bool has(std::string_view name) const { return given_.contains(name); }
  // The last value given; `fallback` without one.
  const char* text(std::string_view name, const char* fallback) const;
  // Throws UsageError unless it is a whole number from 0 to `most`.
  std::uint64_t number(std::string_view name, std::uint64_t fallback, std::uint64_t most) const;
  // `--image`.
  std::optional<std::uint32_t> image() const;

  // The one file name; throws UsageError if there is none or more.
  std::string file() const;

 private:
  [[noreturn]] void fail(const std::string& what) const;

  const Command& command_;
  std::map<std::string_view, const char*> given_;
  std::vector<const char*> files_;
};

}  // namespace ts::trace
