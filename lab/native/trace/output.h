// Lines on the standard output.
//
// Why it exists: 10^8 events make a lot of lines, and a full disk must not pass for an answer.
// What it refuses to do: format; it takes words and numbers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/json_line.h"

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

// Ends the line; throws Error if it could not be written.
void finish(JsonLine& line);

// For people: whatever could move a terminal's cursor is a question mark.
std::string plain_text(std::string_view text);

}  // namespace ts::trace
