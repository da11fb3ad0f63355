// The fields; see report.h.
#include "replay/report.h"

#include <sys/wait.h>

#include <cstring>

#include "common/json_line.h"
#include "replay/surroundings.h"

namespace ts::replay {
namespace {

constexpr std::uint32_t most_reported_shares = 1000;

void write_by_kind(JsonLine& line, const char* name,
                   const std::uint64_t (&values)[plan::call_kinds]) {
  line.begin_object(name);
  for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
    line.add(plan::kind_names[kind], values[kind]);
  }
  line.end_object();
}

bool has_planned_sums(const plan::Image& image, const ImageResult& result) {
  const plan::Totals& planned = image.totals;
  const plan::Totals& made = result.totals;
  if (std::memcmp(made.calls, planned.calls, sizeof made.calls) != 0) return false;
  if (result.null_results != 0) return true;  // refused blocks are neither live nor freed
  return std::memcmp(made.bytes, planned.bytes, sizeof made.bytes) == 0 &&
         result.live_bytes == static_cast<std::int64_t>(image.live_bytes);
}

void write_plan(JsonLine& line, const plan::Image& image) {
  line.begin_object("planned");
  write_by_kind(line, "calls", image.totals.calls);
  write_by_kind(line, "bytes", image.totals.bytes);
  line.add("events", image.events);
  line.add("threads", image.threads);
  line.add("inherited_bytes", image.inherited_bytes);
  line.add("live_bytes", image.live_bytes);
  line.add("live_objects", image.live_objects);
  line.add("peak_live_bytes", image.peak_live_bytes);
  line.add("peak_event", image.peak_event);
  line.add("left_out", image.left_out);
  line.end_object();
}

void write_histogram(JsonLine& line, const char* name, const Histogram& histogram,
                     const Clock& clock) {
  const std::uint64_t calls = histogram.count();
  if (calls == 0) return;
  line.begin_object(name);
  line.add("calls", calls);
  line.add("max_ns", clock.to_ns(histogram.max()));
  line.begin_list("buckets");
  histogram.for_each([&](std::uint64_t upper, std::uint64_t count) {
    line.begin_list();
    line.add_decimal(clock.to_exact_ns(upper));
    line.add(count);
    line.end_list();
  });
  line.end_list();
  line.end_object();
}

void write_latency(JsonLine& line, const World& world, std::uint32_t place) {
  if (!world.settings.latency) return line.add_null("latency");
  const Latency& latency = world.latencies[place];
  line.begin_object("latency");
  for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
    write_histogram(line, plan::kind_names[kind], latency.kinds[kind], world.clock);
  }
  write_histogram(line, "null", latency.nulls, world.clock);
  line.end_object();
}

void write_fault(JsonLine& line, const ImageResult& result) {
  line.add("corrupt", result.corrupt);
  line.add("misaligned", result.misaligned);
  if (result.fault.address == 0) return line.add_null("fault");
  const Fault& fault = result.fault;
  line.begin_object("fault");
  line.add("thread", fault.thread);
  line.add("operation", fault.operation);
  line.add_text("kind", plan::kind_names[static_cast<std::size_t>(fault.kind)]);
  line.add("size", fault.size);
  line.add_if(fault.offset != intact, "offset", fault.offset);
  line.add("address", fault.address);
  line.end_object();
}

void write_memory(JsonLine& line, const World& world, std::uint32_t place,
                  const ImageResult& result) {
  std::int64_t peak = -1;
  line.begin_list("samples");
  for (std::uint64_t i = world.first_samples[place]; i < world.first_samples[place + 1]; ++i) {
    const Sample& sample = world.samples[i];
    if (sample.event == 0) continue;
    if (sample.memory.resident > peak) peak = sample.memory.resident;
    line.begin_list();
    line.add(sample.event);
    line.add(sample.live_bytes);
    line.add(sample.memory.resident);
    line.add(sample.memory.lazy_free);
    line.end_list();
  }
  line.end_list();
  line.add_unless_negative("peak_resident_bytes", peak);
  line.add("start_resident_bytes", result.at_start.resident);
  line.add("end_resident_bytes", result.at_end.resident);
  line.add("freed_resident_bytes", result.freed.resident);
  line.add_if(place == 0 && world.settings.settle_ns >= 0, "settled_resident_bytes",
              result.settled.resident);
  line.add("own_bytes", result.own_bytes);
  line.add("peak_rss_bytes", result.peak_rss_bytes);
}

// What is reported for each process.
void write_image(JsonLine& line, const World& world, std::uint32_t place) {
  const plan::Image& image = world.plan.image(place);
  const ImageResult& result = world.results[place];
  line.add("image", image.number);
  write_by_kind(line, "calls", result.totals.calls);
  write_by_kind(line, "bytes", result.totals.bytes);
  write_plan(line, image);
  line.add_bool("matches", has_planned_sums(image, result));
  line.add("live_bytes", result.live_bytes);
  line.add("peak_live_bytes", result.peak_live_bytes);
  line.add("null_results", result.null_results);
  line.add("granted", result.granted);
  line.add("wall_ns", result.wall_ns);
  line.add("sampling_ns", result.sampling_ns);
  write_fault(line, result);
  char digits[24];
  format(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(result.checksum));
  line.add_text("checksum", digits);
  write_latency(line, world, place);
  write_memory(line, world, place, result);
}

void write_settings(JsonLine& line, const World& world, const Request& request) {
  const Settings& settings = request.settings;
  const Surroundings around = surroundings();
  const bool is_scheduled = settings.order == Order::scheduled;
  line.add_text("allocator", name_of_allocator());
  line.add_text("schedule", request.schedule);
  line.add_if(is_scheduled, "quantum", settings.quantum);
  line.add_if(is_scheduled, "seed", settings.seed);
  line.add_text("program", world.plan.program());
  line.add_bool("finished", world.plan.is_finished());
  line.add_text("touch", request.touch);
  line.add_bool("verify", settings.verify);
  line.add_unless_negative("cpu", around.cpu);
  line.add_bool("aslr", around.has_aslr);
  line.add_bool("huge_pages", around.has_huge_pages);
  line.add("window", world.plan.window());
  if (settings.latency) {
    line.begin_object("clock");
    line.add_text("source", world.clock.source());
    line.end_object();
  } else {
    line.add_null("clock");
  }
}

void write_share(JsonLine& line, const Share& share) {
  line.begin_list();
  line.add(share.thread);
  line.add(share.tickets);
  line.add(share.ticks);
  line.add(share.skipped);
  line.add_decimal(share.owed);
  line.end_list();
}

// In order of number: those that have ended, interleaved with those that have not. There are none
// of those that never began.
void write_shares(JsonLine& line, const VirtualProcessor& processor, std::uint32_t threads) {
  const Schedule& schedule = processor.schedule();
  std::size_t seat = 0;
  line.begin_list("shares");
  for (std::uint32_t thread = 0; thread < threads && thread < most_reported_shares; ++thread) {
    const Share& ended = processor.shares()[thread];
    if (ended.tickets != 0) {
      write_share(line, ended);
    } else if (seat < schedule.threads() && schedule.seat(seat).share.thread == thread) {
      write_share(line, schedule.seat(seat).share);
      ++seat;
    }
  }
  line.end_list();
}

void write_schedule(JsonLine& line, const World& world, const ImageRun& first) {
  if (world.settings.order != Order::scheduled || first.processor() == nullptr) {
    for (const char* const name : {"ticks", "shares"}) line.add_null(name);
    return;
  }
  const VirtualProcessor& processor = *first.processor();
  line.add("ticks", processor.schedule().ticks());
  write_shares(line, processor, world.plan.image(0).threads);
}

void write_child(JsonLine& line, const World& world, std::uint32_t place) {
  const ImageResult& result = world.results[place];
  const plan::Image& image = world.plan.image(place);
  line.begin_object();
  line.add("parent", world.plan.image(image.parent).number);
  line.add_bool("ended", result.has_ended);
  if (result.has_ended) {
    write_image(line, world, place);
  } else {
    const int status = result.wait_status;
    line.add("image", image.number);
    line.add_if(WIFEXITED(status), "exit_code", WEXITSTATUS(status));
    line.add_if(WIFSIGNALED(status), "signal", WTERMSIG(status));
  }
  line.end_object();
}

}  // namespace

bool is_right(const plan::Image& image, const ImageResult& result) {
  return result.has_ended && has_planned_sums(image, result) && result.corrupt == 0 &&
         result.misaligned == 0;
}

int write_report(int descriptor, const World& world, const Request& request,
                 const ImageRun& first) {
  JsonLine line{descriptor};
  line.begin_object();
  line.add_text("schema", "tsmalloc-replay/1");
  line.add_bool("timed_out", false);
  write_settings(line, world, request);
  write_schedule(line, world, first);
  write_image(line, world, 0);
  line.begin_list("children");
  for (std::uint32_t place = 1; place < world.plan.images(); ++place) {
    write_child(line, world, place);
  }
  line.end_list();
  line.end_object();
  return line.finish();
}

}  // namespace ts::replay
