// Builds text without stdio or memory allocation, and truncates it when full.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::os {

// Writes to a buffer of the caller's.
class Text {
 public:
  Text(char* bytes, std::size_t capacity) noexcept : bytes_{bytes}, capacity_{capacity} {}

  // Defined in fatal.cpp.
  void text(const char* begin, std::size_t bytes) noexcept;
  void text(const char* zero_terminated) noexcept;
  // Decimal, padded with spaces to `width`.
  void number(std::uint64_t value, std::size_t width = 0) noexcept;
  void address(const void* value) noexcept;

  const char* begin() const noexcept { return bytes_; }
  std::size_t length() const noexcept { return length_; }

 private:
  char* bytes_;
  std::size_t capacity_;
  std::size_t length_ = 0;
};

// A line for standard error.
class ErrorLine : public Text {
 public:
  // Begins with "tsmalloc: ".
  explicit ErrorLine(const char* first = "") noexcept : Text{line_, sizeof line_ - 1} {
    text("tsmalloc: ");
    text(first);
  }
  ErrorLine(const ErrorLine&) = delete;
  ErrorLine& operator=(const ErrorLine&) = delete;

  // Appends a newline and writes the line.
  void write() noexcept;

 private:
  char line_[512];
};

}  // namespace ts::os
