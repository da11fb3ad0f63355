// Buffering and escaping; see json_line.h.
#include "common/json_line.h"

#include "common/system.h"

namespace ts {

std::size_t utf8_length(std::string_view text) {
  const auto is_in = [text](std::size_t i, unsigned char low, unsigned char high) {
    if (i >= text.size()) return false;
    const auto byte = static_cast<unsigned char>(text[i]);
    return byte >= low && byte <= high;
  };
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  if (first < 0xc2 || first > 0xf4) return 0;
  if (first < 0xe0) return is_in(1, 0x80, 0xbf) ? 2 : 0;
  const bool is_short = first < 0xf0;
  const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  if (!is_in(1, low, high) || !is_in(2, 0x80, 0xbf)) return 0;
  if (is_short) return 3;
  return is_in(3, 0x80, 0xbf) ? 4 : 0;
}

void JsonLine::flush() {
  if (error_number_ == 0) error_number_ = write_all(descriptor_, buffer_, length_);
  length_ = 0;
}

void JsonLine::put(char character) {
  if (length_ == sizeof buffer_) flush();
  buffer_[length_++] = character;
}

void JsonLine::put(std::string_view text) {
  for (const char character : text) put(character);
}

void JsonLine::put_string(std::string_view text) {
  put('"');
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (length == 0 || byte < 0x20 || byte == '<') {  // '<' ends data in a page
      char escape[8];
      format(escape, sizeof escape, length == 0 ? "\\udc%02x" : "\\u%04x", byte);
      put(escape);
    } else {
      if (byte == '"' || byte == '\\') put('\\');
      put(std::string_view{text.data(), length});
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
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

void JsonLine::begin_object(std::string_view name) {
  key(name);
  put('{');
}

void JsonLine::end_object() {
  put('}');
  needs_comma_ = true;
}

void JsonLine::begin_list(std::string_view name) {
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

void JsonLine::key(std::string_view name) {
  put_separator();
  put_string(name);
  put(": ");
  needs_comma_ = false;
}

void JsonLine::put_number(std::intmax_t value) {
  char digits[24];
  format(digits, sizeof digits, "%jd", value);
  put(digits);
}

void JsonLine::put_number(std::uintmax_t value) {
  char digits[24];
  format(digits, sizeof digits, "%ju", value);
  put(digits);
}

void JsonLine::add_decimal(double value) {
  char digits[32];
  format(digits, sizeof digits, "%.6f", value);
  put_separator();
  put(digits);
}

void JsonLine::add_unless_negative(std::int64_t value) {
  if (value >= 0) return add(value);
  put_separator();
  put("null");
}

void JsonLine::add_text(std::string_view name, std::string_view value) {
  key(name);
  put_string(value);
  needs_comma_ = true;
}

void JsonLine::add_bool(std::string_view name, bool value) {
  key(name);
  put(value ? "true" : "false");
  needs_comma_ = true;
}

void JsonLine::add_null(std::string_view name) {
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
