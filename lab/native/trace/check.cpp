// trace check: whether a trace is whole; if not, what is lost.
#include "trace/arguments.h"
#include "trace/format/reader.h"
#include "trace/output.h"

namespace ts::trace {
namespace {

constexpr std::string_view help =
    R"(usage: trace check [options] FILE
Reads all of a trace, and writes a line for each damage: where it is, what is lost, what to do.
What is not named can be read.
  --quiet   no lines, only the exit status
Exit status: 0 the trace is whole; 1 it is damaged, or no trace; 2 wrong usage.
)";

constexpr std::string_view options[] = {"--quiet"};

int check(const Parsed& parsed) {
  Output out;
  Reader reader{parsed.file()};
  reader.verify();
  std::uint64_t events = 0;
  for (const Image& image : reader.images()) events += image.events;
  std::uint64_t lost_events = 0;
  for (const Damage& damage : reader.damage()) lost_events += damage.events;
  if (!parsed.has("--quiet")) {
    for (const Damage& damage : reader.damage()) {
      out << "at byte " << damage.offset << ": " << damage.text << '\n';
    }
    out << (reader.is_whole() ? "whole: " : "damaged: ") << std::uint64_t{reader.images().size()}
        << " images, " << events << " events";
    if (lost_events > 0) out << ", of which " << lost_events << " are lost";
    out << '\n';
  }
  out.finish();
  return reader.is_whole() ? 0 : 1;
}

}  // namespace

const Command check_command{"check", "whether the file is whole; if not, what is lost", help,
                            options, check};

}  // namespace ts::trace
