// `trace plan`: the options, and the line about what was planned.
#include <unistd.h>

#include <cstdio>
#include <string>

#include "common/json_line.h"
#include "trace/arguments.h"
#include "trace/format/reader.h"
#include "trace/output.h"
#include "trace/plan/planner.h"

namespace ts::trace {
namespace {

constexpr std::string_view help =
    R"(usage: trace plan [options] TRACE -o PLAN

Compiles an image of the trace, and all processes that are forked from it, into a plan for `replay`.
Writes one line of JSON about it. A damaged trace is planned as far as it is intact.

  -o, --output PLAN  the file to write
  --force            overwrite it
  --image N          the image (default: the one with the most events, its children's included)
  --window N         no thread runs ahead of the others by more than twice so many events
                     (default: 1000; 0: no limit)
  --times            with the recorded times, for `replay --schedule paced`
)";

constexpr std::uint64_t most_window = 1'000'000'000;

void write_image(JsonLine& line, const plan::Image& image) {
  line.begin_object();
  line.add("image", image.number);
  line.add("events", image.events);
  line.add("threads", image.threads);
  line.add("slots", image.slots);
  line.add("epochs", image.epochs);
  line.add("live_bytes", image.live_bytes);
  line.add("live_objects", image.live_objects);
  line.add("peak_live_bytes", image.peak_live_bytes);
  line.add("peak_event", image.peak_event);
  line.add("left_out", image.left_out);
  line.begin_object("calls");
  for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
    line.add(plan::kind_names[kind], image.totals.calls[kind]);
  }
  line.end_object();
  line.end_object();
}

void write_summary(const PlanSummary& summary, const Reader& reader) {
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add_text("schema", "tsmalloc-plan/1");
  line.add("bytes", summary.bytes);
  line.add_bool("gaps", summary.has_gaps);
  line.add_text("program", reader.find_image(summary.images.front().number)->program);
  line.begin_list("images");
  for (const plan::Image& image : summary.images) write_image(line, image);
  line.end_list();
  line.begin_list("not_planned");
  for (const std::uint32_t number : summary.not_planned) {
    const Image& image = *reader.find_image(number);
    line.begin_object();
    line.add("image", image.number);
    line.add_text("birth", name(image.birth));
    line.add("events", image.events);
    line.add_text("program", image.program);
    line.end_object();
  }
  line.end_list();
  line.end_object();
  finish(line);
}

constexpr std::string_view options[] = {"-o=",      "--output=", "--force",
                                        "--image=", "--window=", "--times"};

int plan_image(const Parsed& parsed) {
  const std::string path = parsed.file();
  const std::string output = parsed.text("-o", parsed.text("--output", ""));
  if (output.empty()) throw UsageError{"no file to write; name one: -o PLAN."};
  PlanSettings settings;
  settings.image = parsed.image();
  settings.window = parsed.number("--window", settings.window, most_window);
  settings.with_times = parsed.has("--times");
  const Reader reader{path};
  const PlanSummary summary = write_plan(reader, settings, output, parsed.has("--force"));
  if (summary.has_gaps) {
    (void)std::fprintf(
        stderr,
        "trace: '%s' is damaged: the plan has what is left of it. `trace check` tells what "
        "is lost.\n",
        path.c_str());
  }
  write_summary(summary, reader);
  return 0;
}

}  // namespace

const Command plan_command{"plan", "what `replay` needs to make the same calls again", help,
                           options, plan_image};

}  // namespace ts::trace
