// `trace analyze`: the options, and what happens after what.
#include <optional>
#include <string>

#include "trace/analyze/analysis.h"
#include "trace/analyze/classes.h"
#include "trace/analyze/first_reading.h"
#include "trace/analyze/json.h"
#include "trace/analyze/report.h"
#include "trace/arguments.h"
#include "trace/choose.h"
#include "trace/commands.h"
#include "trace/format/reader.h"
#include "trace/output.h"

namespace ts::trace {
namespace {

constexpr int exit_damaged = 1;  // the line is there nevertheless

constexpr const char* help =
    R"(usage: trace analyze [options] FILE

Writes one line of JSON about what an image of the trace did with its memory: sizes, lifetimes, the
peak, what is left at the end. A damaged trace is analysed as far as it is intact.

  --image N       the image (default: the one with the most events)
  --classes FILE  size classes of allocators, to predict what each would waste
)";

}  // namespace

int analyze(Arguments arguments) {
  const Parsed parsed{"analyze",
                      arguments,
                      {{"--image", Option::Value::wanted}, {"--classes", Option::Value::wanted}}};
  if (parsed.has("--help")) {
    Output output;
    output << help;
    output.finish();
    return 0;
  }
  const std::string path = parsed.file();
  std::vector<Classes> classes;
  if (parsed.has("--classes")) classes = read_classes(parsed.text("--classes", ""));
  const Reader reader{path};
  std::optional<std::uint32_t> number;
  if (parsed.has("--image")) {
    number = static_cast<std::uint32_t>(parsed.number("--image", 0, max_images));
  }
  const Image& image = choose_image(reader, number, path);
  const FirstReading found = first_reading(reader, image);
  const Analysis analysis = analyse(reader, image, found);
  Json json;
  write_report(json, {base_name(path), reader, image, found, analysis, classes});
  Output output;
  output << json.text() << '\n';
  output.finish();
  return reader.is_whole() && found.gaps.empty() ? 0 : exit_damaged;
}

}  // namespace ts::trace
