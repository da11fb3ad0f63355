// Buffering and escaping; see json_line.h.
#include "common/json_line.h"

#include <unistd.h>

#include <cerrno>

#include "common/system.h"

namespace ts {
namespace {

bool is_continuation(unsigned char byte) { return (byte & 0xc0) == 0x80; }

// The length of the valid UTF-8 sequence of two or more bytes that begins here (RFC 3629: neither
// overlong forms, nor surrogates, nor beyond U+10FFFF), or 0. The NUL at the end is no
// continuation, so it never reads past it.
int utf8_sequence_length(const unsigned char* text) {
  const unsigned char lead = text[0];
  const unsigned char second = text[1];
  if (lead < 0xc2 || lead > 0xf4 || !is_continuation(second)) return 0;
  if (lead < 0xe0) return 2;
  if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
      !is_continuation(text[2]))
    return 0;
  if (lead < 0xf0) return 3;
  if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f) ||
      !is_continuation(text[3]))
    return 0;
  return 4;
}

}  // namespace

void JsonLine::flush() {
  const char* rest = buffer_;
  while (length_ > 0 && error_number_ == 0) {
    const ssize_t written = write(descriptor_, rest, length_);
    if (written >= 0) {
      rest += written;
      length_ -= static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      error_number_ = errno;
    }
  }
  length_ = 0;
}

void JsonLine::put(char character) {
  if (length_ == sizeof buffer_) flush();
  buffer_[length_++] = character;
}

void JsonLine::put(const char* text) {
  while (*text != '\0') put(*text++);
}

// Writes one character, whatever it takes, and returns how many bytes of the text that was.
int JsonLine::put_escaped(const unsigned char* text) {
  char escape[8];
  const unsigned char byte = *text;
  if (byte == '"' || byte == '\\') {
    put('\\');
    put(static_cast<char>(byte));
    return 1;
  }
  if (byte >= 0x20 && byte < 0x80) {
    put(static_cast<char>(byte));
    return 1;
  }
  const int length = utf8_sequence_length(text);
  for (int i = 0; i < length; ++i) put(static_cast<char>(text[i]));
  if (length > 0) return length;
  format(escape, sizeof escape, byte < 0x20 ? "\\u%04x" : "\\udc%02x", byte);
  put(escape);
  return 1;
}

void JsonLine::put_string(const char* text) {
  put('"');
  const auto* rest = reinterpret_cast<const unsigned char*>(text);
  while (*rest != 0) rest += put_escaped(rest);
  put('"');
}

void JsonLine::put_separator() {
  if (needs_comma_) put(", ");
  needs_comma_ = true;
}

void JsonLine::begin_object() {
  put_separator();
  put('{');
  needs_comma_ = false;
}

void JsonLine::end_object() {
  put('}');
  needs_comma_ = true;
}

void JsonLine::begin_list(const char* name) {
  key(name);
  put('[');
}

void JsonLine::begin_list() {
  put_separator();
  put('[');
  needs_comma_ = false;
}

void JsonLine::end_list() {
  put(']');
  needs_comma_ = true;
}

void JsonLine::key(const char* name) {
  put_separator();
  put_string(name);
  put(": ");
  needs_comma_ = false;
}

void JsonLine::put_number(std::int64_t value) {
  char digits[24];
  format(digits, sizeof digits, "%lld", static_cast<long long>(value));
  put(digits);
  needs_comma_ = true;
}

void JsonLine::add(const char* name, std::int64_t value) {
  key(name);
  put_number(value);
}

void JsonLine::add(std::int64_t value) {
  put_separator();
  put_number(value);
}

void JsonLine::add_decimal(double value) {
  constexpr double millionths = 1e6;
  auto whole = static_cast<std::uint64_t>(value);
  auto fraction =
      static_cast<std::uint64_t>((value - static_cast<double>(whole)) * millionths + 0.5);
  if (fraction == 1'000'000) {
    ++whole;
    fraction = 0;
  }
  char digits[32];
  format(digits, sizeof digits, "%llu.%06llu", static_cast<unsigned long long>(whole),
         static_cast<unsigned long long>(fraction));
  put_separator();
  put(digits);
}

void JsonLine::add_unless_negative(const char* name, std::int64_t value) {
  if (value < 0) {
    add_null(name);
  } else {
    add(name, value);
  }
}

void JsonLine::add_unless_negative(std::int64_t value) {
  if (value >= 0) return add(value);
  put_separator();
  put("null");
}

void JsonLine::add_text(const char* name, const char* value) {
  key(name);
  put_string(value);
  needs_comma_ = true;
}

void JsonLine::add_bool(const char* name, bool value) {
  key(name);
  put(value ? "true" : "false");
  needs_comma_ = true;
}

void JsonLine::add_null(const char* name) {
  key(name);
  put("null");
  needs_comma_ = true;
}

int JsonLine::finish() {
  put('\n');
  flush();
  return error_number_;
}

}  // namespace ts
