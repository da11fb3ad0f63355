// Command-line options of the form `--name VALUE` or `--name=VALUE`, parsed without allocating,
// since malloc is under test. An unknown option, or a value that is not a number, ends the program
// with the list of options.
#pragma once

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace ts::test {

class Arguments {
 public:
  // `purpose` is the first line of --help.
  Arguments(int argc, char** argv, const char* purpose)
      : argc_{argc}, argv_{argv}, purpose_{purpose} {
    if (argc > max_arguments) fail("too many arguments", "");
  }

  std::uint64_t number(const char* name, std::uint64_t otherwise, const char* help) {
    remember(name, otherwise, help);
    const char* text = value_of(name);
    if (text == nullptr) return otherwise;
    std::uint64_t value = 0;
    const char* end = text + std::strlen(text);
    const auto [stopped, error] = std::from_chars(text, end, value);
    if (error != std::errc{} || stopped != end || text == end)
      fail("needs a whole number, not", text, name);
    return value;
  }

  // The next argument that is not an option, or null. Call after the last number(), which tells
  // words from the values of options; --help prints `usage` for all words.
  const char* word(const char* usage) {
    words_ = usage;
    for (int i = 1; i < argc_; ++i) {
      if (used_[i] || argv_[i][0] == '-') continue;
      used_[i] = true;
      return argv_[i];
    }
    return nullptr;
  }

  // Call after all others: everything on the command line must have been asked for.
  void finish() {
    for (int i = 1; i < argc_; ++i) {
      if (std::strcmp(argv_[i], "--help") == 0) {
        print_help(stdout);
        std::exit(0);
      }
      if (!used_[i]) fail("unknown argument", argv_[i]);
    }
  }

  [[noreturn]] void fail(const char* what, const char* text, const char* option = nullptr) const {
    if (option != nullptr) std::fprintf(stderr, "--%s ", option);
    std::fprintf(stderr, "%s '%s'\n", what, text);
    print_help(stderr);
    std::exit(2);
  }

 private:
  static constexpr int max_arguments = 64;
  static constexpr int max_options = 16;

  struct Option {
    const char* name;
    std::uint64_t otherwise;
    const char* help;
  };

  void remember(const char* name, std::uint64_t otherwise, const char* help) {
    if (options_count_ < max_options) options_[options_count_++] = {name, otherwise, help};
  }

  // The text given for an option, the last one if it is repeated; null if missing.
  const char* value_of(std::string_view name) {
    const char* value = nullptr;
    for (int i = 1; i < argc_; ++i) {
      std::string_view argument{argv_[i]};
      if (!argument.starts_with("--") || !argument.substr(2).starts_with(name)) continue;
      const std::string_view rest = argument.substr(2 + name.size());
      if (rest.starts_with('=')) {
        used_[i] = true;
        value = argv_[i] + (argument.size() - rest.size() + 1);
      } else if (rest.empty()) {
        if (i + 1 == argc_) fail("needs a value", argv_[i]);
        used_[i] = used_[i + 1] = true;
        value = argv_[i + 1];
      }
    }
    return value;
  }

  void print_help(std::FILE* to) const {
    std::fprintf(to, "%s\nusage: %s%s%s [options]\n", purpose_, argv_[0],
                 words_ != nullptr ? " " : "", words_ != nullptr ? words_ : "");
    for (int i = 0; i < options_count_; ++i) {
      std::fprintf(to, "  --%-20s %s (%llu)\n", options_[i].name, options_[i].help,
                   static_cast<unsigned long long>(options_[i].otherwise));
    }
  }

  int argc_;
  char** argv_;
  const char* purpose_;
  const char* words_ = nullptr;
  bool used_[max_arguments] = {};
  Option options_[max_options] = {};
  int options_count_ = 0;
};

}  // namespace ts::test
