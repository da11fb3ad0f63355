// A line for standard error, made without stdio and without memory, and cut off where it is full.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::os {

class ErrorLine {
 public:
  // Begins with the name of the project.
  explicit ErrorLine(const char* first = "") noexcept {
    text("tsmalloc: ");
    text(first);
  }

  // Defined in fatal.cpp.
  void text(const char* begin, std::size_t bytes) noexcept;
  void text(const char* zero_terminated) noexcept;
  void number(std::uint64_t value) noexcept;
  void address(const void* value) noexcept;
  // Adds the end of the line.
  void write() noexcept;

 private:
  std::size_t length_ = 0;
  char bytes_[512];
};

}  // namespace ts::os
