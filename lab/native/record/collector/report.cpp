// See report.h.
#include "record/collector/report.h"

#include <algorithm>
#include <string>
#include <vector>

#include "common/json_line.h"
#include "launch/report.h"

namespace ts::record {
namespace {

void add_count(JsonLine& line, const char* name, std::uint64_t value) {
  line.add(name, static_cast<std::int64_t>(value));
}

void write_image(JsonLine& line, const ImageReport& image) {
  line.begin_object();
  line.add("image", image.number);
  line.add("pid", image.pid);
  line.add_text("program", image.program.c_str());
  line.add_text("allocator", image.allocator.c_str());
  line.add_unless_negative("parent",
                           image.parent == trace::no_image ? std::int64_t{-1} : image.parent);
  line.add_text("birth", std::string{trace::name(image.birth)}.c_str());
  line.add_text("end", std::string{trace::name(image.end)}.c_str());
  add_count(line, "events", image.events);
  add_count(line, "objects", image.objects);
  add_count(line, "frees", image.frees);
  add_count(line, "threads", image.threads);
  add_count(line, "null_frees", image.null_frees);
  add_count(line, "unknown_frees", image.oddities.unknown_frees);
  add_count(line, "unknown_resizes", image.oddities.unknown_resizes);
  add_count(line, "missed_frees", image.oddities.missed_frees);
  add_count(line, "unfinished_resizes", image.oddities.unfinished);
  add_count(line, "lost_events", image.lost_events);
  add_count(line, "waits", image.waits);
  add_count(line, "wait_ns", image.wait_ns);
  line.end_object();
}

void write_images(JsonLine& line, std::vector<ImageReport> images) {
  std::sort(images.begin(), images.end(),
            [](const ImageReport& a, const ImageReport& b) { return a.number < b.number; });
  line.begin_list("images");
  for (const ImageReport& image : images) write_image(line, image);
  line.end_list();
}

void write_unrecorded(JsonLine& line, const Unrecorded& unrecorded) {
  line.begin_list("unrecorded");
  for (const Unrecorded::Program& program : unrecorded.programs()) {
    line.begin_object();
    line.add_text("program", program.name.c_str());
    line.add_text("reason", program.reason.c_str());
    line.end_object();
  }
  line.end_list();
}

}  // namespace

void write_report(int descriptor, const Options& options, const StartedChild& child,
                  const TraceSink& sink, const Session& session, const Ring& ring) {
  JsonLine line{descriptor};
  line.begin_object();
  line.add_text("schema", "tsmalloc-record/1");
  write_spawn_error(line, child);
  line.add_unless_negative("timeout_ns", options.timeout_ns == 0 ? -1 : options.timeout_ns);
  write_end(line, session.end());
  line.add_unless_negative("wall_ns", child.error_number == 0 ? session.wall_ns() : -1);
  if (!sink.failure().empty()) {
    line.add_text("write_error", sink.failure().c_str());
  } else {
    line.add_null("write_error");
  }
  add_count(line, "trace_bytes", sink.bytes());
  std::uint64_t events = 0;
  for (const ImageReport& image : session.collector().reports()) events += image.events;
  add_count(line, "events", events);
  line.add("images_without_place", ring.images_without_place.load(std::memory_order_relaxed));
  line.add("images_without_room", ring.images_without_mapping.load(std::memory_order_relaxed));
  write_images(line, session.collector().reports());
  write_unrecorded(line, session.unrecorded());
  line.end_object();
  finish_report(line);
}

}  // namespace ts::record
