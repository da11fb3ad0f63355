// trace print: one line for each event.
#include <unistd.h>

#include "common/json_line.h"
#include "trace/arguments.h"
#include "trace/format/reader.h"
#include "trace/output.h"

namespace ts::trace {
namespace {

constexpr std::string_view help =
    R"(usage: trace print [options] FILE
Writes one line for each event: IMAGE EVENT TIME_NS THREAD KIND OBJECT SIZE ALIGNMENT, with "-"
for what the kind of event does not have. OBJECT is the creator's number for thread_begin, and the
image of the child for fork. Lost events are lines that begin with "#".
  --image N   only this image (default: all, one after the other)
  --from N    begin with this event
  --count N   at most as many events of each image
  --json      an object on each line instead
Exit status: 0 all was there; 1 events are lost, or the file cannot be read; 2 wrong usage.
)";

bool has_object(Kind kind) { return kind != Kind::refused && kind != Kind::thread_end; }

// The meaning of the number in `object`.
const char* object_key(Kind kind) {
  if (kind == Kind::thread_begin) return "creator";
  return kind == Kind::fork ? "child" : "object";
}

void print_text(Output& out, std::uint32_t image, std::uint64_t number, const Event& event) {
  out << std::uint64_t{image} << ' ' << number << ' ' << event.time_ns << ' '
      << std::uint64_t{event.thread} << ' ' << name(event.kind) << ' ';
  has_object(event.kind) ? out << event.object : out << '-';
  out << ' ';
  has_size(event.kind) ? out << event.size : out << '-';
  out << ' ';
  event.kind == Kind::aligned ? out << (std::uint64_t{1} << event.log2_alignment) : out << '-';
  out << '\n';
}

void print_json(Output& out, std::uint32_t image, std::uint64_t number, const Event& event) {
  out << R"({"image":)" << std::uint64_t{image} << R"(,"event":)" << number << R"(,"time_ns":)"
      << event.time_ns << R"(,"thread":)" << std::uint64_t{event.thread} << R"(,"kind":")"
      << name(event.kind) << '"';
  if (has_object(event.kind)) out << ",\"" << object_key(event.kind) << "\":" << event.object;
  if (has_size(event.kind)) out << ",\"size\":" << event.size;
  if (event.kind == Kind::aligned) {
    out << ",\"alignment\":" << (std::uint64_t{1} << event.log2_alignment);
  }
  out << "}\n";
}

void print_gap(Output& out, std::uint32_t image, const Gap& gap, bool as_json) {
  if (!as_json) {
    out << "# image " << std::uint64_t{image} << ", from event " << gap.first_event << " on, ";
    gap.events == 0 ? out << "an unknown number" : out << gap.events;
    out << " lost: " << gap.text << '\n';
    return;
  }
  out.finish();
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add("image", image);
  line.add("lost_from", gap.first_event);
  line.add_if(gap.events != 0, "lost", gap.events);
  line.add_text("text", gap.text);
  line.end_object();
  finish(line);
}

// False: events are lost.
bool print_image(Output& out, Cursor cursor, std::uint32_t image, std::uint64_t count,
                 bool as_json) {
  bool is_whole = true;
  const auto tell_gap = [&] {
    if (cursor.gap() == nullptr) return;
    is_whole = false;
    print_gap(out, image, *cursor.gap(), as_json);
  };
  for (std::uint64_t i = 0; i < count; ++i) {
    Event event;
    const bool is_there = cursor.next(event);
    tell_gap();
    if (!is_there) break;
    (as_json ? print_json : print_text)(out, image, cursor.number(), event);
  }
  return is_whole;
}

constexpr std::string_view options[] = {"--image=", "--from=", "--count=", "--json"};

int print_events(const Parsed& parsed) {
  Output out;
  const std::uint64_t from = parsed.number("--from", 0, max_events);
  const std::uint64_t count = parsed.number("--count", max_events, max_events);
  const std::optional<std::uint32_t> only = parsed.image();
  const bool as_json = parsed.has("--json");
  const std::string path = parsed.file();
  const Reader reader{path};
  bool is_whole = true;
  if (only) {
    is_whole = print_image(out, reader.events(*only, from), *only, count, as_json);
  } else {
    for (const Image& image : reader.images()) {
      is_whole &= print_image(out, reader.events(image.number, from), image.number, count, as_json);
    }
    is_whole &= reader.is_whole();
  }
  out.finish();
  if (is_whole) return 0;
  throw Error{"'" + path +
              "' is damaged: not all events are there. `trace check` tells what is lost."};
}

}  // namespace

const Command print_command{"print", "one line for each event", help, options, print_events};

}  // namespace ts::trace
