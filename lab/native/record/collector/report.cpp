// See report.h.
#include "record/collector/report.h"

#include <algorithm>
#include <vector>

#include "common/json_line.h"
#include "launch/report.h"

namespace ts::record {
namespace {

void write_image(JsonLine& line, const ImageReport& image) {
  line.begin_object();
  line.add("image", image.number);
  line.add("pid", image.pid);
  line.add_text("program", image.program);
  line.add_text("allocator", image.allocator);
  line.add_if(image.parent != trace::no_image, "parent", image.parent);
  line.add_text("birth", trace::name(image.birth));
  line.add_text("end", trace::name(image.end));
  line.add("events", image.events);
  line.add("objects", image.objects);
  line.add("frees", image.frees);
  line.add("threads", image.threads);
  line.add("null_frees", image.null_frees);
  line.add("unknown_frees", image.oddities.unknown_frees);
  line.add("unknown_resizes", image.oddities.unknown_resizes);
  line.add("missed_frees", image.oddities.missed_frees);
  line.add("unfinished_resizes", image.oddities.unfinished);
  line.add("lost_events", image.lost_events);
  line.add("waits", image.waits);
  line.add("wait_ns", image.wait_ns);
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
    line.add_text("program", program.name);
    line.add_text("reason", program.reason);
    line.end_object();
  }
  line.end_list();
}

}  // namespace

void write_report(int descriptor, const Options& options, const StartedChild& child,
                  const TraceSink& sink, const Session& session, const Ring& ring) {
  JsonLine line{descriptor};
  begin_report(line, "tsmalloc-record/1", options, child, session.end());
  line.add_if(child.error_number == 0, "wall_ns", session.end().wall_ns());
  if (!sink.failure().empty()) {
    line.add_text("write_error", sink.failure());
  } else {
    line.add_null("write_error");
  }
  line.add("trace_bytes", sink.bytes());
  std::uint64_t events = 0;
  for (const ImageReport& image : session.collector().reports()) events += image.events;
  line.add("events", events);
  line.add("images_without_place", ring.images_without_place.load(std::memory_order_relaxed));
  line.add("images_without_room", ring.images_without_mapping.load(std::memory_order_relaxed));
  write_images(line, session.collector().reports());
  write_unrecorded(line, session.unrecorded());
  finish_report(line);
}

}  // namespace ts::record
