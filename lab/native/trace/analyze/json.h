// Builds one line of JSON.
//
// Why it exists: reports are hundreds of nested numbers, and a forgotten comma loses all of them.
// What it refuses to do: indent, or hold numbers that are not whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ts::trace {

class Json {
 public:
  void begin_object();
  void begin_object(std::string_view name);
  void end_object();
  void begin_list();  // within a list
  void begin_list(std::string_view name);
  void end_list();

  void add(std::string_view name, std::uint64_t value);
  void add(std::uint64_t value);  // within a list
  void add_text(std::string_view name, std::string_view value);
  void add_bool(std::string_view name, bool value);
  void add_null(std::string_view name);

  // A list of numbers within a list.
  template <typename... Numbers>
  void add_row(Numbers... numbers) {
    begin_list();
    (add(std::uint64_t{numbers}), ...);
    end_list();
  }

  const std::string& text() const { return text_; }

 private:
  void separate();
  void key(std::string_view name);

  std::string text_;
  bool needs_comma_ = false;
};

}  // namespace ts::trace
