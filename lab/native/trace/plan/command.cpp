// `trace plan`: the options, and the line about what was planned.
#include <cstdio>
#include <string>

#include "trace/arguments.h"
#include "trace/commands.h"
#include "trace/format/reader.h"
#include "trace/output.h"
#include "trace/plan/planner.h"

namespace ts::trace {
namespace {

constexpr const char* help =
    R"(usage: trace plan [options] TRACE -o PLAN

Compiles an image of the trace, and all processes that are forked from it, into a plan for `replay`.
Writes one line of JSON about it. A damaged trace is planned as far as it is intact.

  -o, --output PLAN  the file to write
  --force            overwrite it
  --image N          the image (default: the one with the most events, its children's included)
  --window N         no thread runs ahead of the others by more than twice so many events
                     (default: 1000; 0: no limit)
  --times            with the recorded times, for `replay --schedule paced`
  --alone            without the forked processes
)";

constexpr std::uint64_t most_window = 1'000'000'000;

void put_image(Output& out, const plan::Image& image) {
  out << "{\"image\": " << std::uint64_t{image.number} << ", \"events\": " << image.events
      << ", \"threads\": " << std::uint64_t{image.threads} << ", \"slots\": " << image.slots
      << ", \"epochs\": " << std::uint64_t{image.epochs} << ", \"live_bytes\": " << image.live_bytes
      << ", \"live_objects\": " << image.live_objects
      << ", \"peak_live_bytes\": " << image.peak_live_bytes
      << ", \"peak_event\": " << image.peak_event << ", \"left_out\": " << image.left_out
      << ", \"calls\": {";
  for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
    out << (kind > 0 ? ", \"" : "\"") << plan::kind_names[kind]
        << "\": " << image.totals.calls[kind];
  }
  out << "}}";
}

void put_summary(Output& out, const PlanSummary& summary, const Reader& reader) {
  out << "{\"schema\": \"tsmalloc-plan/1\", \"bytes\": " << summary.bytes
      << ", \"gaps\": " << (summary.has_gaps ? "true" : "false")
      << ", \"program\": " << json_text(reader.find_image(summary.images.front().number)->program)
      << ", \"images\": [";
  for (std::size_t i = 0; i < summary.images.size(); ++i) {
    if (i > 0) out << ", ";
    put_image(out, summary.images[i]);
  }
  out << "], \"not_planned\": [";
  for (std::size_t i = 0; i < summary.not_planned.size(); ++i) {
    const Image& image = *reader.find_image(summary.not_planned[i]);
    out << (i > 0 ? ", {" : "{") << "\"image\": " << std::uint64_t{image.number}
        << ", \"birth\": \"" << name(image.birth) << "\", \"events\": " << image.events
        << ", \"program\": " << json_text(image.program) << "}";
  }
  out << "]}\n";
}

}  // namespace

int plan_image(Arguments arguments) {
  using Value = Option::Value;
  const Parsed parsed{"plan",
                      arguments,
                      {{"-o", Value::wanted},
                       {"--output", Value::wanted},
                       {"--force", Value::none},
                       {"--image", Value::wanted},
                       {"--window", Value::wanted},
                       {"--times", Value::none},
                       {"--alone", Value::none}}};
  Output out;
  if (parsed.has("--help")) {
    out << help;
    out.finish();
    return 0;
  }
  const std::string path = parsed.file();
  const std::string output = parsed.text("-o", parsed.text("--output", ""));
  if (output.empty()) throw UsageError{"no file to write; name one: -o PLAN."};
  PlanSettings settings;
  if (parsed.has("--image")) {
    settings.image = static_cast<std::uint32_t>(parsed.number("--image", 0, max_images));
  }
  settings.window = parsed.number("--window", settings.window, most_window);
  settings.with_times = parsed.has("--times");
  settings.alone = parsed.has("--alone");
  const Reader reader{path};
  const PlanSummary summary = write_plan(reader, settings, output, parsed.has("--force"));
  if (summary.has_gaps) {
    (void)std::fprintf(
        stderr,
        "trace: '%s' is damaged: the plan has what is left of it. `trace check` tells what "
        "is lost.\n",
        path.c_str());
  }
  put_summary(out, summary, reader);
  out.finish();
  return 0;
}

}  // namespace ts::trace
