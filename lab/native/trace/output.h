// Lines on the standard output.
//
// Why it exists: 10^8 events make a lot of lines, and a full disk must not pass for an answer.
// What it refuses to do: format; it takes words and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ts::trace {

class Output {
 public:
  Output& operator<<(std::string_view text) {
    buffer_ += text;
    if (buffer_.size() >= buffer_bytes) write();
    return *this;
  }
  Output& operator<<(char character) { return *this << std::string_view{&character, 1}; }
  Output& operator<<(std::uint64_t number);

  // What is still in the buffer; throws Error if anything could not be written.
  void finish();

 private:
  static constexpr std::size_t buffer_bytes = 1 << 16;
  void write();

  std::string buffer_;
};

// As a JSON string, with its quotes. A byte that is not part of valid UTF-8 becomes the lone
// surrogate \udcXX, as in Python's "surrogateescape".
std::string json_text(std::string_view text);

// For people: whatever could move a terminal's cursor is a question mark.
std::string plain_text(std::string_view text);

}  // namespace ts::trace
