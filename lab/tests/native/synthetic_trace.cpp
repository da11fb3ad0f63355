// Writes a synthetic trace, for tests in Python; prints what is in it, a line of JSON for each
// image.
//
//   synthetic_trace FILE [NAME=NUMBER...]      the names are those of a Recipe
#include <unistd.h>

#include <string>
#include <utility>

#include "common/json_line.h"
#include "synthetic.h"

namespace ts {

const char* tool_name() { return "synthetic_trace"; }

namespace replay::testing {
namespace {

constexpr std::pair<const char*, std::uint64_t Recipe::*> fields[] = {
    {"seed", &Recipe::seed},
    {"events", &Recipe::events},
    {"threads", &Recipe::threads},
    {"live_objects", &Recipe::live_objects},
    {"max_bytes", &Recipe::max_bytes},
    {"has_aligned", &Recipe::has_aligned},
    {"threads_end", &Recipe::threads_end},
    {"forks", &Recipe::forks},
    {"execs", &Recipe::execs},
    {"exec_events", &Recipe::exec_events},
    {"everybody_shares", &Recipe::everybody_shares},
    {"ns_per_event", &Recipe::ns_per_event}};

void set(Recipe& recipe, const std::string& text) {
  const std::size_t equals = text.find('=');
  for (const auto& [name, field] : fields) {
    if (text.substr(0, equals) == name) recipe.*field = std::stoull(text.substr(equals + 1));
  }
}

void print(const Expected& image) {
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add("image", image.number);
  line.add("events", image.events);
  line.add("live_bytes", image.live_bytes);
  line.add("live_objects", image.live_objects);
  line.add("peak_live_bytes", image.peak_live_bytes);
  for (const bool is_bytes : {false, true}) {
    line.begin_object(is_bytes ? "bytes" : "calls");
    for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
      line.add(trace::name(static_cast<trace::Kind>(kind)),
               is_bytes ? image.totals.bytes[kind] : image.totals.calls[kind]);
    }
    line.end_object();
  }
  line.end_object();
  line.finish();
}

}  // namespace
}  // namespace replay::testing
}  // namespace ts

int main(int argument_count, char** arguments) {
  using namespace ts::replay::testing;
  Recipe recipe;
  if (argument_count < 2) return 1;
  for (int i = 2; i < argument_count; ++i) set(recipe, arguments[i]);
  for (const Expected& image : write_synthetic(arguments[1], recipe)) print(image);
  return 0;
}
