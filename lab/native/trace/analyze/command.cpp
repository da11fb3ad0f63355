// `trace analyze`: the options, and what happens after what.
#include <unistd.h>

#include <string>

#include "common/system.h"
#include "trace/analyze/analysis.h"
#include "trace/analyze/classes.h"
#include "trace/analyze/first_reading.h"
#include "trace/analyze/report.h"
#include "trace/arguments.h"
#include "trace/choose.h"
#include "trace/format/reader.h"
#include "trace/output.h"

namespace ts::trace {
namespace {

constexpr int exit_damaged = 1;  // the line is there nevertheless

constexpr std::string_view help =
    R"(usage: trace analyze [options] FILE

Writes one line of JSON about what an image of the trace did with its memory: sizes, lifetimes, the
peak, what is left at the end. A damaged trace is analysed as far as it is intact.

  --image N       the image (default: the one with the most events)
  --classes FILE  size classes of allocators, to predict what each would waste
)";

constexpr std::string_view options[] = {"--image=", "--classes="};

int analyze(const Parsed& parsed) {
  const std::string path = parsed.file();
  std::vector<Classes> classes;
  if (parsed.has("--classes")) classes = read_classes(parsed.text("--classes", ""));
  const Reader reader{path};
  const Image& image = choose_image(reader, parsed.image(), path);
  const FirstReading found = first_reading(reader, image);
  const Analysis analysis = analyse(reader, image, found);
  JsonLine line{STDOUT_FILENO};
  write_report(line, {base_name(path.c_str()), reader, image, found, analysis, classes});
  finish(line);
  return reader.is_whole() && found.gaps.empty() ? 0 : exit_damaged;
}

}  // namespace

const Command analyze_command{"analyze", "what a program did with its memory", help, options,
                              analyze};

}  // namespace ts::trace
