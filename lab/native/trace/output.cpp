#include "trace/output.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>

#include "common/system.h"
#include "trace/format/error.h"

namespace ts::trace {
namespace {

bool is_control(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return byte < 0x20 || byte == 0x7f;
}

[[noreturn]] void fail(int error_number) {
  throw Error{std::string{"cannot write to the standard output: "} + strerrordesc_np(error_number) +
              ". Make room, or send it elsewhere."};
}

}  // namespace

Output& Output::operator<<(std::uint64_t number) {
  std::array<char, 20> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return *this << std::string_view{digits.data(), static_cast<std::size_t>(end - digits.data())};
}

void Output::write() {
  const int error_number = write_all(STDOUT_FILENO, buffer_.data(), buffer_.size());
  if (error_number != 0) fail(error_number);
  buffer_.clear();
}

void Output::finish() { write(); }

void finish(JsonLine& line) {
  if (const int error_number = line.finish(); error_number != 0) fail(error_number);
}

std::string plain_text(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const bool is_c1_control = length == 2 && text[0] == '\xc2' && text[1] < '\xa0';
    if (length == 0 || is_control(text.front()) || is_c1_control) {
      plain += '?';
    } else {
      plain += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return plain;
}

}  // namespace ts::trace
