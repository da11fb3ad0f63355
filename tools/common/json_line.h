// Writes one line of JSON to a descriptor.
//
// Why it exists: names of files and errors come from outside and may hold any byte, and a report
// that cannot be parsed is lost. What it refuses to do: lose bytes. A byte that is not part of valid
// UTF-8 becomes the lone surrogate \udcXX, which Python's "surrogateescape" turns back into the same
// byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts {

class JsonLine {
 public:
  explicit JsonLine(int descriptor) : descriptor_{descriptor} {}

  void begin_object();
  void end_object();
  void begin_list(const char* key);
  void begin_list();  // within a list
  void end_list();
  void key(const char* name);  // before begin_object, or before a value written by hand

  void add(const char* name, std::int64_t value);
  void add(std::int64_t value);                                    // within a list
  void add_decimal(double value);                                  // within a list; not negative
  void add_unless_negative(const char* name, std::int64_t value);  // null instead
  void add_unless_negative(std::int64_t value);                    // within a list
  void add_text(const char* name, const char* value);
  void add_bool(const char* name, bool value);
  void add_null(const char* name);

  // Ends the line. Returns 0, or the number of the first error in writing.
  int finish();

 private:
  void put_number(std::int64_t value);
  void put(char character);
  void put(const char* text);
  int put_escaped(const unsigned char* text);
  void put_string(const char* text);
  void put_separator();
  void flush();

  int descriptor_;
  int error_number_ = 0;
  bool needs_comma_ = false;
  std::size_t length_ = 0;
  char buffer_[2048];
};

}  // namespace ts
