// See json.h.
#include "trace/analyze/json.h"

#include "trace/output.h"

namespace ts::trace {

void Json::separate() {
  if (needs_comma_) text_ += ", ";
  needs_comma_ = true;
}

void Json::key(std::string_view name) {
  separate();
  text_ += json_text(name);
  text_ += ": ";
}

void Json::begin_object() {
  separate();
  text_ += '{';
  needs_comma_ = false;
}

void Json::begin_object(std::string_view name) {
  key(name);
  text_ += '{';
  needs_comma_ = false;
}

void Json::end_object() {
  text_ += '}';
  needs_comma_ = true;
}

void Json::begin_list() {
  separate();
  text_ += '[';
  needs_comma_ = false;
}

void Json::begin_list(std::string_view name) {
  key(name);
  text_ += '[';
  needs_comma_ = false;
}

void Json::end_list() {
  text_ += ']';
  needs_comma_ = true;
}

void Json::add(std::string_view name, std::uint64_t value) {
  key(name);
  text_ += std::to_string(value);
}

void Json::add(std::uint64_t value) {
  separate();
  text_ += std::to_string(value);
}

void Json::add_text(std::string_view name, std::string_view value) {
  key(name);
  text_ += json_text(value);
}

void Json::add_bool(std::string_view name, bool value) {
  key(name);
  text_ += value ? "true" : "false";
}

void Json::add_null(std::string_view name) {
  key(name);
  text_ += "null";
}

}  // namespace ts::trace
