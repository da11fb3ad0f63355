// The fields; see report.h.
#include "replay/report.h"

#include <sys/wait.h>

#include <cstring>

#include "common/json_line.h"
#include "replay/machine_state.h"

namespace ts::replay {
namespace {

constexpr std::uint32_t max_reported_shares = 1000;

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

void write_latency(JsonLine& line, const ReplayContext& context, std::uint32_t place) {
  if (!context.settings.latency) return line.add_null("latency");
  const Latency& latency = context.latencies[place];
  line.begin_object("latency");
  for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
    write_histogram(line, plan::kind_names[kind], latency.kinds[kind], context.clock);
  }
  write_histogram(line, "null", latency.nulls, context.clock);
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

void write_memory(JsonLine& line, const ReplayContext& context, std::uint32_t place,
                  const ImageResult& result) {
  std::int64_t peak = -1;
  line.begin_list("samples");
  for (std::uint64_t i = context.first_samples[place]; i < context.first_samples[place + 1]; ++i) {
    const Sample& sample = context.samples[i];
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
  line.add_if(place == 0 && context.settings.settle_ns >= 0, "settled_resident_bytes",
              result.settled.resident);
  line.add("own_bytes", result.own_bytes);
  line.add("peak_rss_bytes", result.peak_rss_bytes);
}

// What is reported for each process.
void write_image(JsonLine& line, const ReplayContext& context, std::uint32_t place) {
  const plan::Image& image = context.plan.image(place);
  const ImageResult& result = context.results[place];
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
  write_latency(line, context, place);
  write_memory(line, context, place, result);
}

void write_settings(JsonLine& line, const ReplayContext& context, const Request& request) {
  const Settings& settings = request.settings;
  const MachineState machine = machine_state();
  const bool is_scheduled = settings.order == Order::scheduled;
  line.add_text("allocator", name_of_allocator());
  line.add_text("schedule", request.schedule);
  line.add_if(is_scheduled, "quantum", settings.quantum);
  line.add_if(is_scheduled, "seed", settings.seed);
  line.add_text("program", context.plan.program());
  line.add_bool("finished", context.plan.is_finished());
  line.add_text("touch", request.touch);
  line.add_bool("verify", settings.verify);
  line.add_unless_negative("cpu", machine.cpu);
  line.add_bool("aslr", machine.has_aslr);
  line.add_bool("huge_pages", machine.has_huge_pages);
  line.add("window", context.plan.window());
  if (settings.latency) {
    line.begin_object("clock");
    line.add_text("source", context.clock.source());
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
  std::size_t client = 0;
  line.begin_list("shares");
  for (std::uint32_t thread = 0; thread < threads && thread < max_reported_shares; ++thread) {
    const Share& ended = processor.shares()[thread];
    if (ended.tickets != 0) {
      write_share(line, ended);
    } else if (client < schedule.threads() && schedule.client(client).share.thread == thread) {
      write_share(line, schedule.client(client).share);
      ++client;
    }
  }
  line.end_list();
}

void write_schedule(JsonLine& line, const ReplayContext& context, const ImageRun& first) {
  if (context.settings.order != Order::scheduled || first.processor() == nullptr) {
    for (const char* const name : {"ticks", "shares"}) line.add_null(name);
    return;
  }
  const VirtualProcessor& processor = *first.processor();
  line.add("ticks", processor.schedule().ticks());
  write_shares(line, processor, context.plan.image(0).threads);
}

void write_child(JsonLine& line, const ReplayContext& context, std::uint32_t place) {
  const ImageResult& result = context.results[place];
  const plan::Image& image = context.plan.image(place);
  line.begin_object();
  line.add("parent", context.plan.image(image.parent).number);
  line.add_bool("ended", result.has_ended);
  if (result.has_ended) {
    write_image(line, context, place);
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

int write_report(int descriptor, const ReplayContext& context, const Request& request,
                 const ImageRun& first) {
  JsonLine line{descriptor};
  line.begin_object();
  line.add_text("schema", "tsmalloc-replay/1");
  line.add_bool("timed_out", false);
  write_settings(line, context, request);
  write_schedule(line, context, first);
  write_image(line, context, 0);
  line.begin_list("children");
  for (std::uint32_t place = 1; place < context.plan.images(); ++place) {
    write_child(line, context, place);
  }
  line.end_list();
  line.end_object();
  return line.finish();
}

}  // namespace ts::replay
