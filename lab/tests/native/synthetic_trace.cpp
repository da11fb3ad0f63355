// Writes a synthetic trace, for tests in Python; prints what is in it, a line of JSON for each
// image.
//
//   synthetic_trace FILE [NAME=NUMBER...]      the names are those of a Recipe
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "synthetic.h"

namespace ts::replay::testing {
namespace {

bool set(Recipe& recipe, const char* text) {
  const char* const equals = std::strchr(text, '=');
  if (equals == nullptr) return false;
  const std::string name{text, equals};
  const std::uint64_t number = std::strtoull(equals + 1, nullptr, 10);
  if (name == "seed") recipe.seed = number;
  if (name == "events") recipe.events = number;
  if (name == "threads") recipe.threads = static_cast<std::uint32_t>(number);
  if (name == "live_objects") recipe.live_objects = number;
  if (name == "max_bytes") recipe.max_bytes = number;
  if (name == "has_aligned") recipe.has_aligned = number != 0;
  if (name == "threads_end") recipe.threads_end = number != 0;
  if (name == "forks") recipe.forks = static_cast<std::uint32_t>(number);
  if (name == "execs") recipe.execs = static_cast<std::uint32_t>(number);
  if (name == "exec_events") recipe.exec_events = number;
  if (name == "everybody_shares") recipe.everybody_shares = number != 0;
  if (name == "ns_per_event") recipe.ns_per_event = number;
  return true;
}

void print(const Expected& image) {
  std::printf(
      "{\"image\": %u, \"events\": %llu, \"live_bytes\": %llu, \"live_objects\": %llu, "
      "\"peak_live_bytes\": %llu",
      image.number, static_cast<unsigned long long>(image.events),
      static_cast<unsigned long long>(image.live_bytes),
      static_cast<unsigned long long>(image.live_objects),
      static_cast<unsigned long long>(image.peak_live_bytes));
  for (const bool is_bytes : {false, true}) {
    std::printf(", \"%s\": {", is_bytes ? "bytes" : "calls");
    for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
      const auto& values = is_bytes ? image.totals.bytes : image.totals.calls;
      std::printf("%s\"%s\": %llu", kind > 0 ? ", " : "",
                  trace::name(static_cast<trace::Kind>(kind)),
                  static_cast<unsigned long long>(values[kind]));
    }
    std::printf("}");
  }
  std::printf("}\n");
}

}  // namespace
}  // namespace ts::replay::testing

int main(int argument_count, char** arguments) {
  using namespace ts::replay::testing;
  Recipe recipe;
  for (int i = 2; i < argument_count; ++i) {
    if (!set(recipe, arguments[i])) return 1;
  }
  if (argument_count < 2) return 1;
  try {
    for (const Expected& image : write_synthetic(arguments[1], recipe)) print(image);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return 0;
}
