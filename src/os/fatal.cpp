// Giving up (declared in base/check.h): a line on standard error, then SIGABRT. Also defines Text
// and ErrorLine, which build such lines.
#include "base/bits.h"
#include "base/check.h"
#include "os/error_line.h"
#include "os/os.h"

namespace ts {
namespace os {

void Text::text(const char* begin, std::size_t bytes) noexcept {
  for (std::size_t i = 0; i < bytes && length_ < capacity_; ++i) bytes_[length_++] = begin[i];
}

// Not strlen(), which another library may interpose: the caller may hold a lock.
void Text::text(const char* zero_terminated) noexcept {
  for (; *zero_terminated != '\0'; ++zero_terminated) text(zero_terminated, 1);
}

void Text::number(std::uint64_t value, std::size_t width) noexcept {
  char digits[20];
  char* const end = digits + sizeof digits;
  char* at = end;
  do {
    *--at = static_cast<char>('0' + value % 10);
    value /= 10;
  } while (value != 0);
  const auto length = static_cast<std::size_t>(end - at);
  for (std::size_t i = length; i < width; ++i) text(" ", 1);
  text(at, length);
}

void Text::address(const void* value) noexcept {
  char digits[16];
  char* const end = digits + sizeof digits;
  char* at = end;
  std::uintptr_t rest = address_of(value);
  do {
    const auto digit = static_cast<unsigned>(rest & 0xf);
    *--at = static_cast<char>(digit < 10 ? '0' + digit : 'a' + digit - 10);
    rest >>= 4;
  } while (rest != 0);
  text("0x");
  text(at, static_cast<std::size_t>(end - at));
}

void ErrorLine::write() noexcept {
  line_[length()] = '\n';
  write_error(line_, length() + 1);
}

}  // namespace os

void fatal(const char* message, const void* where) noexcept {
  os::ErrorLine line;
  line.text(message);
  if (where != nullptr) {
    line.text(": ");
    line.address(where);
  }
  line.write();
  os::abort_process();
}

}  // namespace ts
