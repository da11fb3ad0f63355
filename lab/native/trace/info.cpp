// trace info: the images, and what they did in all.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>

#include "common/json_line.h"
#include "trace/arguments.h"
#include "trace/choose.h"
#include "trace/format/reader.h"
#include "trace/output.h"

namespace ts::trace {
namespace {

constexpr std::string_view help =
    R"(usage: trace info [options] FILE
Writes what a trace holds: its images, and the totals.
  --kinds   also read all events, and count calls and bytes by kind
  --json    one object ("schema": "tsmalloc-trace-info/1") instead of text
Exit status: 0 the trace is whole; 1 it is damaged (what is known is written), or cannot be read;
2 wrong usage.
)";

struct KindTotals {
  std::uint64_t calls = 0;
  std::uint64_t bytes = 0;  // requested
};
using Totals = std::array<KindTotals, static_cast<std::size_t>(Kind::count)>;

struct Summary {
  std::uint64_t events = 0;
  std::uint64_t objects = 0;
  std::uint64_t read_events = 0;  // while counting by kind
  Totals kinds{};
};

Summary summarise(const Reader& reader, bool with_kinds) {
  Summary summary;
  for (const Image& image : reader.images()) {
    summary.events += image.events;
    summary.objects += image.objects;
    if (!with_kinds) continue;
    Cursor cursor = reader.events(image.number);
    for (Event event; cursor.next(event); ++summary.read_events) {
      KindTotals& kind = summary.kinds[static_cast<std::size_t>(event.kind)];
      ++kind.calls;
      kind.bytes += event.size;
    }
  }
  return summary;
}

void write_json_image(JsonLine& line, const Image& image) {
  const bool is_known = image.birth != Image::Birth::unknown;
  line.begin_object();
  line.add("number", image.number);
  line.add_text("birth", name(image.birth));
  line.add_if(is_known && image.parent != no_image, "parent", image.parent);
  line.add_if(image.birth == Image::Birth::fork, "fork_event", image.fork_event);
  line.add_if(is_known, "begin_ns", image.begin_ns);
  line.add_text("program", image.program);
  line.add_text("allocator", image.allocator);
  line.add("events", image.events);
  line.add("objects", image.objects);
  line.add("first_object", image.first_object);
  line.add("threads", image.threads);
  line.add("end_ns", image.end_ns);
  line.add_text("end", name(image.end));
  line.end_object();
}

void write_json(const Reader& reader, const Summary& summary, bool with_kinds) {
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add_text("schema", "tsmalloc-trace-info/1");
  line.add("file_bytes", reader.file_bytes());
  line.add("chunks", reader.chunks());
  line.add("events", summary.events);
  line.add("objects", summary.objects);
  line.add_bool("whole", reader.is_whole());
  const Image* const busiest = busiest_program(reader);
  line.add_if(busiest != nullptr, "busiest", busiest != nullptr ? busiest->number : 0);
  line.begin_list("images");
  for (const Image& image : reader.images()) write_json_image(line, image);
  line.end_list();
  if (with_kinds) {
    line.add("read_events", summary.read_events);
    line.begin_object("kinds");
    for (std::size_t i = 0; i < summary.kinds.size(); ++i) {
      line.begin_object(name(static_cast<Kind>(i)));
      line.add("calls", summary.kinds[i].calls);
      line.add("bytes", summary.kinds[i].bytes);
      line.end_object();
    }
    line.end_object();
  }
  line.end_object();
  finish(line);
}

// Columns of text; a text that does not fit into the buffer is cut.
[[gnu::format(printf, 2, 3)]] void put(Output& out, const char* pattern, ...) {
  char text[128];
  va_list arguments;
  va_start(arguments, pattern);
  static_cast<void>(std::vsnprintf(text, sizeof text, pattern, arguments));
  va_end(arguments);
  out << std::string_view{text};
}

void put_text_image(Output& out, const Image& image) {
  const std::string parent = image.parent == no_image ? "-" : std::to_string(image.parent);
  put(out, "%5u%7s  %-8s%-8s%7lu%12lu%12lu%11lu  ", image.number, parent.c_str(),
      name(image.birth).data(), name(image.end).data(), image.threads, image.events, image.objects,
      image.end_ns / 1'000'000);
  out << plain_text(image.program.empty() ? "?" : image.program) << " on "
      << plain_text(image.allocator.empty() ? "?" : image.allocator) << '\n';
}

void put_text(const Reader& reader, const Summary& summary, bool with_kinds) {
  Output out;
  out << "image parent  birth   end     threads      events     objects   millisec  program\n";
  for (const Image& image : reader.images()) put_text_image(out, image);
  out << '\n'
      << summary.events << " events, " << summary.objects << " objects, " << reader.file_bytes()
      << " bytes in " << reader.chunks() << " chunks";
  if (summary.events > 0) {
    const std::uint64_t thousandths = reader.file_bytes() * 1'000 / summary.events;
    put(out, ": %lu.%03lu bytes per event", thousandths / 1'000, thousandths % 1'000);
  }
  out << '\n';
  if (with_kinds) out << "\nkind                calls               bytes\n";
  for (std::size_t i = 0; i < summary.kinds.size() && with_kinds; ++i) {
    const KindTotals& kind = summary.kinds[i];
    put(out, "%-12s%13lu%20lu\n", name(static_cast<Kind>(i)).data(), kind.calls, kind.bytes);
  }
  out.finish();
}

constexpr std::string_view options[] = {"--kinds", "--json"};

int print_info(const Parsed& parsed) {
  const bool with_kinds = parsed.has("--kinds");
  const std::string path = parsed.file();
  const Reader reader{path};
  const Summary summary = summarise(reader, with_kinds);
  (parsed.has("--json") ? write_json : put_text)(reader, summary, with_kinds);
  const bool is_all_there = !with_kinds || summary.read_events == summary.events;
  if (reader.is_whole() && is_all_there) return 0;
  throw Error{"'" + path +
              "' is damaged: not all of it is counted. `trace check` tells what is lost."};
}

}  // namespace

const Command info_command{"info", "the images, and what they did in all", help, options,
                           print_info};

}  // namespace ts::trace
