// Reads the options of a sub-command.
//
// Why it exists: every sub-command takes options of the same few forms, and says the same when they
// are wrong. What it refuses to do: short options, and options with optional values.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "trace/commands.h"

namespace ts::trace {

class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Option {
  const char* name;  // "--image"
  enum class Value : std::uint8_t { none, wanted } value;
};

// `--name VALUE`, `--name=VALUE` and `--flag` in any order, mixed with file names; `--` ends
// options.
class Parsed {
 public:
  // Throws UsageError that names `command` for what is not in `options`. `--help` is always known.
  Parsed(const char* command, Arguments arguments, std::initializer_list<Option> options);

  bool has(const char* name) const;
  // The last value given; `fallback` without one.
  const char* text(const char* name, const char* fallback) const;
  // Throws UsageError unless it is a whole number from 0 to `most`.
  std::uint64_t number(const char* name, std::uint64_t fallback, std::uint64_t most) const;

  // The one file name; throws UsageError if there is none or more.
  std::string file() const;

 private:
  struct Given {
    std::string name;
    const char* value;
  };
  const Given* find(const char* name) const;
  [[noreturn]] void fail(const std::string& what) const;

  const char* command_;
  std::vector<Given> given_;
  std::vector<const char*> files_;
};

}  // namespace ts::trace
