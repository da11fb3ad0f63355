// Writes one line of JSON to a descriptor. File names and errors may contain any byte: one that is
// not part of valid UTF-8 becomes the lone surrogate \udcXX, which Python's "surrogateescape" turns
// back.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace ts {

// The length of the valid UTF-8 sequence at the start of `text`, which is not empty; 0 if it starts
// with none (RFC 3629: neither overlong forms, nor surrogates, nor beyond U+10FFFF).
std::size_t utf8_length(std::string_view text);

class JsonLine {
 public:
  explicit JsonLine(int descriptor) : descriptor_{descriptor} {}

  void begin_object();
  void begin_object(std::string_view key);
  void end_object();
  void begin_list(std::string_view key);
  void begin_list();  // within a list
  void end_list();

  template <std::integral Number>
  void add(std::string_view name, Number value) {
    key(name);
    add(value);
  }
  template <std::integral Number>
  void add(Number value) {  // within a list
    using Widest = std::conditional_t<std::is_signed_v<Number>, std::intmax_t, std::uintmax_t>;
    put_separator();
    put_number(static_cast<Widest>(value));
  }
  // A list of numbers within a list.
  template <std::integral... Numbers>
  void add_row(Numbers... numbers) {
    begin_list();
    (add(numbers), ...);
    end_list();
  }
  template <std::integral Number>
  void add_if(bool is_known, std::string_view name, Number value) {  // null instead
    is_known ? add(name, value) : add_null(name);
  }
  void add_unless_negative(std::string_view name, std::int64_t value) {
    add_if(value >= 0, name, value);
  }
  void add_unless_negative(std::int64_t value);  // within a list
  void add_decimal(double value);                // within a list; not negative
  void add_text(std::string_view name, std::string_view value);
  void add_bool(std::string_view name, bool value);
  void add_null(std::string_view name);

  // Ends the line. Returns 0, or the number of the first error in writing.
  int finish();

 private:
  void key(std::string_view name);
  void put_number(std::intmax_t value);
  void put_number(std::uintmax_t value);
  void put(char character);
  void put(std::string_view text);
  void put_string(std::string_view text);
  void put_separator();
  void flush();

  int descriptor_;
  int error_number_ = 0;
  bool needs_comma_ = false;
  std::size_t length_ = 0;
  char buffer_[2048];
};

}  // namespace ts
