#include "record/collector/session.h"

#include <sys/wait.h>

#include <algorithm>
#include <vector>

#include "common/json_line.h"
#include "launch/report.h"

namespace ts::record {
namespace {

constexpr Nanoseconds compare_interval_ns = 10 * ns_per_ms;
constexpr Nanoseconds flush_interval_ns = ns_per_second;
constexpr Nanoseconds scan_interval_ns = 50 * ns_per_ms;

// The ring holds a million records: what a program that does nothing else writes in 50 ms.
constexpr Nanoseconds shortest_nap_ns = ns_per_ms;
constexpr Nanoseconds longest_nap_ns = 5 * ns_per_ms;
constexpr std::size_t many_records = 20'000;  // in a round: then more have already come

// How it ended, as waitpid() will report, except for a core dump.
int wait_status_of(const siginfo_t& info) {
  return info.si_code == CLD_EXITED ? W_EXITCODE(info.si_status, 0) : info.si_status;
}

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
  line.add("unknown_frees", image.anomalies.unknown_frees);
  line.add("unknown_resizes", image.anomalies.unknown_resizes);
  line.add("missed_frees", image.anomalies.missed_frees);
  line.add("unfinished_resizes", image.anomalies.unfinished);
  line.add("lost_events", image.lost_events);
  line.add("waits", image.waits);
  line.add("wait_ns", image.wait_ns);
  line.end_object();
}

void write_images(JsonLine& line, std::vector<ImageReport> images) {
  std::ranges::sort(images, {}, &ImageReport::number);
  line.begin_list("images");
  for (const ImageReport& image : images) write_image(line, image);
  line.end_list();
}

void write_unrecorded(JsonLine& line, const Unrecorded& unrecorded) {
  line.begin_list("unrecorded");
  for (const std::string& program : unrecorded.programs()) {
    line.begin_object();
    line.add_text("program", program);
    line.end_object();
  }
  line.end_list();
}

}  // namespace

Session::Session(const Options& options, const StartedChild& child, RingFile& file, Clock& clock,
                 TraceSink& sink)
    : child_{child},
      clock_{clock},
      sink_{sink},
      collector_{file, clock, sink},
      end_{options.timeout_ns, child.exec_ns} {}

// Ended processes are examined before they are reaped. The collector is told the status twice: its
// round may use it for an image already known to be dead, or discard it on finding a new image, as
// the status of an earlier process with that ID.
bool Session::reap() {
  for (;;) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return false;  // ECHILD
    if (info.si_pid == 0) return true;
    collector_.note_end(info.si_pid, wait_status_of(info));
    collector_.collect();
    unrecorded_.check_ended(info.si_pid, collector_);
    int status = 0;
    if (waitpid(info.si_pid, &status, WNOHANG) != info.si_pid) return true;
    collector_.note_end(info.si_pid, status);
    end_.note_end(info.si_pid == child_.pid, status);
  }
}

void Session::run_due_tasks() {
  const Nanoseconds now = now_ns();
  if (now >= compare_ns_) {
    clock_.compare();
    compare_ns_ = now + compare_interval_ns;
  }
  if (now >= flush_ns_) {
    sink_.flush();
    flush_ns_ = now + flush_interval_ns;
  }
  if (now >= scan_ns_) {
    unrecorded_.scan(end_.tree(), collector_);
    scan_ns_ = now_ns() + scan_interval_ns;
  }
}

void Session::wait(std::size_t found) {
  quiet_rounds_ = found == 0 ? quiet_rounds_ + 1 : 0;
  Nanoseconds nap_ns = std::min(shortest_nap_ns * (1 + quiet_rounds_ / 16), longest_nap_ns);
  if (found >= many_records) nap_ns = 0;
  end_.wait(now_ns() + nap_ns);
}

void Session::run() {
  while (reap() && !end_.gives_up()) {
    end_.pass_deadline_if_due();
    run_due_tasks();
    wait(collector_.collect());
  }
  collector_.conclude();
  sink_.finish();
}

void Session::report(int descriptor, const Options& options, const Ring& ring) const {
  JsonLine line{descriptor};
  begin_report(line, "tsmalloc-record/1", options, child_, end_);
  line.add_if(child_.error_number == 0, "wall_ns", end_.wall_ns());
  sink_.failure().empty() ? line.add_null("write_error")
                          : line.add_text("write_error", sink_.failure());
  line.add("trace_bytes", sink_.bytes());
  std::uint64_t events = 0;
  for (const ImageReport& image : collector_.reports()) events += image.events;
  line.add("events", events);
  line.add("images_without_place", ring.images_without_place.load(std::memory_order_relaxed));
  line.add("images_without_room", ring.images_without_mapping.load(std::memory_order_relaxed));
  write_images(line, collector_.reports());
  write_unrecorded(line, unrecorded_);
  finish_report(line);
}

}  // namespace ts::record
