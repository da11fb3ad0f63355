// See output.h.
#include "trace/output.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "trace/format/error.h"

namespace ts::trace {
namespace {

// The length of the valid UTF-8 sequence that `text` begins with; 0 if there is none.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto is_in = [&](std::size_t i, unsigned low, unsigned high) {
    return i < text.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return is_in(1, 0x80, 0xbf) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80;   // no longer than needed
    const unsigned high = first == 0xed ? 0x9f : 0xbf;  // no surrogates
    return is_in(1, low, high) && is_in(2, 0x80, 0xbf) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80;
    const unsigned high = first == 0xf4 ? 0x8f : 0xbf;
    return is_in(1, low, high) && is_in(2, 0x80, 0xbf) && is_in(3, 0x80, 0xbf) ? 4 : 0;
  }
  return 0;
}

bool is_control(char character) {
  const auto byte = static_cast<unsigned char>(character);
  return byte < 0x20 || byte == 0x7f;
}

void append_code(std::string& to, unsigned code) {
  constexpr char digits[] = "0123456789abcdef";
  to += "\\u";
  for (int shift = 12; shift >= 0; shift -= 4) to += digits[(code >> shift) & 0xf];
}

}  // namespace

Output& Output::operator<<(std::uint64_t number) {
  std::array<char, 20> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return *this << std::string_view{digits.data(), static_cast<std::size_t>(end - digits.data())};
}

void Output::write() {
  const char* from = buffer_.data();
  for (std::size_t remaining = buffer_.size(); remaining > 0;) {
    const ssize_t written = ::write(STDOUT_FILENO, from, remaining);
    if (written < 0) {
      if (errno == EINTR) continue;
      throw Error{std::string{"cannot write to the standard output: "} + strerrordesc_np(errno) +
                  ". Make room, or send it elsewhere."};
    }
    from += written;
    remaining -= static_cast<std::size_t>(written);
  }
  buffer_.clear();
}

void Output::finish() { write(); }

std::string json_text(std::string_view text) {
  std::string quoted = "\"";
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const char first = text.front();
    if (length == 0) {
      append_code(quoted, 0xdc00U + static_cast<unsigned char>(first));
    } else if (is_control(first)) {
      append_code(quoted, static_cast<unsigned char>(first));
    } else {
      if (first == '"' || first == '\\') quoted += '\\';
      quoted += text.substr(0, length);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return quoted + '"';
}

std::string plain_text(std::string_view text) {
  std::string plain;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
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
