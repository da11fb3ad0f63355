// trace info: the images, and what they did in all.
#include <array>

#include "trace/arguments.h"
#include "trace/choose.h"
#include "trace/commands.h"
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

void put_json_or_null(Output& out, const char* key, bool is_known, std::uint64_t value) {
  out << ",\"" << key << "\":";
  is_known ? out << value : out << "null";
}

void put_json_image(Output& out, const Image& image) {
  const bool is_known = image.birth != Image::Birth::unknown;
  out << R"({"number":)" << std::uint64_t{image.number} << R"(,"birth":")" << name(image.birth)
      << '"';
  put_json_or_null(out, "parent", is_known && image.parent != no_image, image.parent);
  put_json_or_null(out, "fork_event", image.birth == Image::Birth::fork, image.fork_event);
  put_json_or_null(out, "begin_ns", is_known, image.begin_ns);
  out << R"(,"program":)" << json_text(image.program) << R"(,"allocator":)"
      << json_text(image.allocator) << R"(,"events":)" << image.events << R"(,"objects":)"
      << image.objects << R"(,"first_object":)" << image.first_object << R"(,"threads":)"
      << image.threads << R"(,"end_ns":)" << image.end_ns << R"(,"end":")" << name(image.end)
      << "\"}";
}

void put_json(Output& out, const Reader& reader, const Summary& summary, bool with_kinds) {
  out << R"({"schema":"tsmalloc-trace-info/1","file_bytes":)" << reader.file_bytes()
      << R"(,"chunks":)" << reader.chunks() << R"(,"events":)" << summary.events << R"(,"objects":)"
      << summary.objects << R"(,"whole":)" << (reader.is_whole() ? "true" : "false")
      << R"(,"busiest":)";
  const Image* const busiest = busiest_program(reader, false);
  busiest == nullptr ? out << "null" : out << std::uint64_t{busiest->number};
  out << R"(,"images":[)";
  for (const Image& image : reader.images()) {
    if (&image != reader.images().data()) out << ',';
    put_json_image(out, image);
  }
  out << "]";
  if (with_kinds) {
    out << R"(,"read_events":)" << summary.read_events << R"(,"kinds":{)";
    for (std::size_t i = 0; i < summary.kinds.size(); ++i) {
      if (i > 0) out << ',';
      out << '"' << name(static_cast<Kind>(i)) << R"(":{"calls":)" << summary.kinds[i].calls
          << R"(,"bytes":)" << summary.kinds[i].bytes << '}';
    }
    out << '}';
  }
  out << "}\n";
}

// "12.345" of 12,345 thousandths.
void put_thousandths(Output& out, std::uint64_t thousandths) {
  const std::string digits = std::to_string(1'000 + thousandths % 1'000);
  out << thousandths / 1'000 << '.' << std::string_view{digits}.substr(1);
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size(), width), ' ');
  return text;
}

std::string right(const std::string& text, std::size_t width) {
  return std::string(text.size() < width ? width - text.size() : 0, ' ') + text;
}

void put_text_image(Output& out, const Image& image) {
  const std::string parent = image.parent == no_image ? "-" : std::to_string(image.parent);
  out << right(std::to_string(image.number), 5) << right(parent, 7) << "  "
      << padded(std::string{name(image.birth)}, 8) << padded(std::string{name(image.end)}, 8)
      << right(std::to_string(image.threads), 7) << right(std::to_string(image.events), 12)
      << right(std::to_string(image.objects), 12)
      << right(std::to_string(image.end_ns / 1'000'000), 11) << "  "
      << plain_text(image.program.empty() ? "?" : image.program) << " on "
      << plain_text(image.allocator.empty() ? "?" : image.allocator) << '\n';
}

void put_text(Output& out, const Reader& reader, const Summary& summary, bool with_kinds) {
  out << "image parent  birth   end     threads      events     objects   millisec  program\n";
  for (const Image& image : reader.images()) put_text_image(out, image);
  out << '\n'
      << summary.events << " events, " << summary.objects << " objects, " << reader.file_bytes()
      << " bytes in " << reader.chunks() << " chunks";
  if (summary.events > 0) {
    out << ": ";
    put_thousandths(out, reader.file_bytes() * 1'000 / summary.events);
    out << " bytes per event";
  }
  out << '\n';
  if (!with_kinds) return;
  out << "\nkind                calls               bytes\n";
  for (std::size_t i = 0; i < summary.kinds.size(); ++i) {
    const KindTotals& kind = summary.kinds[i];
    out << padded(std::string{name(static_cast<Kind>(i))}, 12)
        << right(std::to_string(kind.calls), 13) << right(std::to_string(kind.bytes), 20) << '\n';
  }
}

}  // namespace

int print_info(Arguments arguments) {
  using Value = Option::Value;
  const Parsed parsed{"info", arguments, {{"--kinds", Value::none}, {"--json", Value::none}}};
  Output out;
  if (parsed.has("--help")) {
    out << help;
    out.finish();
    return 0;
  }
  const bool with_kinds = parsed.has("--kinds");
  const std::string path = parsed.file();
  const Reader reader{path};
  const Summary summary = summarise(reader, with_kinds);
  (parsed.has("--json") ? put_json : put_text)(out, reader, summary, with_kinds);
  out.finish();
  const bool is_all_there = !with_kinds || summary.read_events == summary.events;
  if (reader.is_whole() && is_all_there) return 0;
  throw Error{"'" + path +
              "' is damaged: not all of it is counted. `trace check` tells what is lost."};
}

}  // namespace ts::trace
