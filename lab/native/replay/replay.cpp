// replay: makes the calls of a recorded program, under whatever allocator is loaded.
//
// A program used to compare many allocators should do the same each time, and recorded ones do.
// replay has no C++ run-time library and calls malloc only for the trace's calls; tables are mapped
// (memory.h).
#include <dlfcn.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "common/json_line.h"
#include "common/system.h"
#include "launch/options.h"
#include "replay/image_run.h"
#include "replay/memory.h"
#include "replay/plan.h"

namespace ts {

const char* tool_name() { return "replay"; }

namespace replay {
namespace {

// --- the command line ---

constexpr char help_text[] =
    R"(usage: replay [options] TRACE
Repeats the allocator calls of a recorded program, and writes one line of JSON.
To choose the allocator, preload it: LD_PRELOAD=LIBRARY replay TRACE

  --schedule NAME    asap (default): all threads run as fast as they can
                     paced: each call at its recorded time
                     recorded, round-robin, lottery, stride: one thread at a time, on one
                     processor, in the same order in each run
  --image N          which program of the trace (default: the one with most events)
  --window N         how many events a thread may run ahead of others (default 1000; 0: no limit)
  --quantum N        calls that a schedule grants at a time (default 100)
  --tickets N,N,...  tickets of threads 0, 1, ... for lottery and stride, repeated as needed (default 1)
  --seed N           for lottery (default 1)
  --touch HOW        what to write into each block: none, first (byte), page (a byte of each;
                     default), all
  --verify           check that blocks keep their contents, even in realloc, and that calloc zeroes
  --latency          measure each call
  --addresses FILE   log the addresses that the first process allocates and frees
  --frames N         with --addresses, log N times which pages are resident, to FILE.frames
  --samples N        sample memory N times, and at the peak of live bytes
  --settle SECONDS   at the end, with everything freed, wait and sample memory again
  --help

Exit status: 0 the line was written; 1 usage error; 2 the line was written, but the calls were not
the recorded ones or blocks were corrupt; 125 replay failed, or cannot read the trace.
)";

struct Request {
  const char* trace = nullptr;
  const char* addresses = nullptr;  // a file for them
  std::uint64_t frames = 0;         // how often to query which pages are resident
  Settings settings;
  plan::LoadSettings load;
};

Request* asked = nullptr;  // while it is parsed

constexpr const char* orders[] = {"asap",        "paced",   "recorded",
                                  "round-robin", "lottery", "stride"};  // as in Order
constexpr const char* touches[] = {"none", "first", "page", "all"};     // as in Touch

template <class Value, std::size_t count>
Value parse_name(const char* text, const char* const (&names)[count], const char* all) {
  for (std::size_t i = 0; i < count; ++i) {
    if (std::strcmp(text, names[i]) == 0) return static_cast<Value>(i);
  }
  fail_usage({"--", applied, " must be ", all, ", not '", text, "'."});
}

std::uint64_t at_least_one(const char* text, std::int64_t maximum) {
  const std::uint64_t number = parse_whole(text, maximum);
  if (number == 0) fail_usage({"--", applied, " must be at least 1."});
  return number;
}

constexpr std::int64_t max_quantum = INT64_C(1'000'000'000'000);
constexpr std::int64_t max_listed = 1'000'000;

constexpr Option known[] = {
    {"schedule",
     [](const char* text) {
       asked->settings.order =
           parse_name<Order>(text, orders, "asap, paced, recorded, round-robin, lottery or stride");
       asked->load.with_times = asked->settings.order == Order::paced;
     }},
    {"image",
     [](const char* text) {
       asked->load.image = static_cast<std::int64_t>(parse_whole(text, trace::max_images));
     }},
    {"window", [](const char* text) { asked->load.window = parse_whole(text, max_quantum); }},
    {"quantum",
     [](const char* text) { asked->settings.quantum = at_least_one(text, max_quantum); }},
    {"tickets",
     [](const char* text) {
       const char* const wrong = asked->settings.tickets.parse(text);
       if (wrong != nullptr) fail_usage({"--tickets ", text, ": ", wrong});
     }},
    {"seed", [](const char* text) { asked->settings.seed = parse_whole(text, INT64_MAX); }},
    {"addresses", [](const char* text) { asked->addresses = text; }},
    {"frames", [](const char* text) { asked->frames = at_least_one(text, max_listed); }},
    {"touch",
     [](const char* text) {
       asked->settings.touch = parse_name<Touch>(text, touches, "none, first, page or all");
     }},
    {"verify", [](const char*) { asked->settings.verify = true; }, true},
    {"latency", [](const char*) { asked->settings.latency = true; }, true},
    {"samples", [](const char* text) { asked->settings.samples = at_least_one(text, max_listed); }},
    {"settle",
     [](const char* text) { asked->settings.settle_ns = parse_time(text, ns_per_second); }},
    {"help",
     [](const char*) {
       dprintf(STDOUT_FILENO, "%s", help_text);
       _exit(0);
     },
     true},
};

void parse_request(int argument_count, char** arguments, Request& request) {
  asked = &request;
  const int trace = apply_options(argument_count, arguments, "", known);
  if (trace != argument_count - 1) {
    fail_usage({trace >= argument_count ? "no trace given; record one with `tsmalloc record`."
                                        : "give only one trace."});
  }
  if (request.frames != 0 && request.addresses == nullptr)
    fail_usage({"--frames needs --addresses FILE."});
  request.trace = arguments[trace];
}

// --- the environment, which must not vary: processors, addresses, page sizes ---
//
// Runs that make the same calls in the same order get the same addresses only if the kernel lays
// the process out the same way. If a system does not permit that, it is reported, but not an error.

constexpr unsigned long as_it_is = 0xffff'ffff;  // queries without a change

bool is_randomised() {
  const int now = personality(as_it_is);
  return now == -1 || (static_cast<unsigned>(now) & ADDR_NO_RANDOMIZE) == 0;
}

// The last processor that we may use; -1: not known.
int last_cpu(cpu_set_t& usable) {
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return -1;
  int last = CPU_SETSIZE - 1;
  while (last > 0 && CPU_ISSET(last, &usable) == 0) --last;
  return last;
}

struct MachineState {
  bool has_aslr = true;        // addresses are randomised
  bool has_huge_pages = true;  // the system may use them as configured
  int cpu = -1;                // the one processor of all threads; -1: several
};

// Switches off randomisation, for which the program restarts (so call this first), and huge pages,
// and binds everything to one processor.
void make_repeatable(char** arguments) {
  const int now = personality(as_it_is);
  if (now != -1 && is_randomised()) {
    (void)personality(static_cast<unsigned>(now) | ADDR_NO_RANDOMIZE);
    // If that is not permitted, continue with the current addresses.
    if (!is_randomised()) execv("/proc/self/exe", arguments);
  }
  (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  // To the last processor, since systems handle most interrupts on the first.
  cpu_set_t usable;
  const int last = last_cpu(usable);
  if (last < 0) return;
  CPU_ZERO(&usable);
  CPU_SET(last, &usable);
  (void)sched_setaffinity(0, sizeof usable, &usable);
}

MachineState machine_state() {
  MachineState found;
  found.has_aslr = is_randomised();
  found.has_huge_pages = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) != 1;
  cpu_set_t usable;
  const int last = last_cpu(usable);
  if (CPU_COUNT(&usable) == 1) found.cpu = last;
  return found;
}

// --- the line of JSON; lab/native/README.md explains its fields ---

constexpr std::uint32_t max_reported_shares = 1000;

const char* name_of(std::size_t kind) { return trace::name(static_cast<plan::Kind>(kind)); }

void write_by_kind(JsonLine& line, const char* name,
                   const std::uint64_t (&values)[plan::call_kinds]) {
  line.begin_object(name);
  for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
    line.add(name_of(kind), values[kind]);
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
  line.add("max_ns", static_cast<std::uint64_t>(clock.duration_ns(histogram.max())));
  line.begin_list("buckets");
  histogram.for_each([&](std::uint64_t upper, std::uint64_t count) {
    line.begin_list();
    line.add_decimal(clock.duration_ns(upper));
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
    write_histogram(line, name_of(kind), latency.kinds[kind], context.clock);
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
  line.add_text("kind", trace::name(fault.kind));
  line.add("size", fault.size);
  line.add_if(fault.offset != intact, "offset", fault.offset);
  line.add("address", fault.address);
  line.end_object();
}

void write_memory(JsonLine& line, const ReplayContext& context, std::uint32_t place,
                  const ImageResult& result) {
  std::int64_t peak = -1;
  line.begin_list("samples");
  for (std::uint64_t i = 0; i < context.samples_each(); ++i) {
    const Sample& sample = context.samples[place * context.samples_each() + i];
    if (sample.event == 0) continue;
    if (sample.memory.resident > peak) peak = sample.memory.resident;
    line.add_row(sample.event, sample.live_bytes, sample.memory.resident, sample.memory.lazy_free);
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

// Base name of the library that contains malloc.
const char* name_of_allocator() {
  Dl_info info = {};
  const bool is_found = dladdr(reinterpret_cast<void*>(&std::malloc), &info) != 0;
  return base_name(is_found ? info.dli_fname : "");
}

void write_settings(JsonLine& line, const ReplayContext& context) {
  const Settings& settings = context.settings;
  const MachineState machine = machine_state();
  const bool has_ticks = is_scheduled(settings.order);
  line.add_text("allocator", name_of_allocator());
  line.add_text("schedule", orders[static_cast<std::size_t>(settings.order)]);
  line.add_if(has_ticks, "quantum", settings.quantum);
  line.add_if(has_ticks, "seed", settings.seed);
  line.add_text("program", context.plan.program());
  line.add_bool("finished", context.plan.is_finished());
  line.add_text("touch", touches[static_cast<std::size_t>(settings.touch)]);
  line.add_bool("verify", settings.verify);
  line.add_unless_negative("cpu", machine.cpu);
  line.add_bool("aslr", machine.has_aslr);
  line.add_bool("huge_pages", machine.has_huge_pages);
  line.add("window", context.plan.window());
  if (settings.latency) {
    line.begin_object("clock");
    line.add_text("source", context.clock.has_counter() ? "tsc" : "monotonic");
    line.end_object();
  } else {
    line.add_null("clock");
  }
}

void write_schedule(JsonLine& line, const ReplayContext& context, const ImageRun& first) {
  if (!is_scheduled(context.settings.order)) {
    for (const char* const name : {"ticks", "shares"}) line.add_null(name);
    return;
  }
  const Schedule& schedule = first.processor()->schedule();
  line.add("ticks", schedule.ticks());
  line.begin_list("shares");
  const std::uint32_t threads = std::min(context.plan.image(0).threads, max_reported_shares);
  for (std::uint32_t thread = 0; thread < threads; ++thread) {
    const Share& share = schedule.share(thread);
    if (share.tickets == 0) continue;  // it never began
    line.begin_list();
    line.add(thread);
    line.add(share.tickets);
    line.add(share.ticks);
    line.add(share.skipped);
    line.add_decimal(share.owed);
    line.end_list();
  }
  line.end_list();
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

int write_report(const ReplayContext& context, const ImageRun& first) {
  JsonLine line{STDOUT_FILENO};
  line.begin_object();
  line.add_text("schema", "tsmalloc-replay/1");
  line.add_bool("timed_out", false);
  write_settings(line, context);
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

constexpr int exit_wrong = 2;

int exit_status(const ReplayContext& context) {
  int status = 0;
  for (std::size_t i = 0; i < context.plan.images(); ++i) {
    const ImageResult& result = context.results[i];
    const bool is_right = result.has_ended && has_planned_sums(context.plan.image(i), result);
    if (!is_right || result.corrupt != 0 || result.misaligned != 0) status = exit_wrong;
  }
  if (status != 0) {
    dprintf(STDERR_FILENO,
            "replay: the calls differed from the recorded ones, or blocks were corrupt; see "
            "`matches`, `corrupt`, `misaligned` and `children` in the line.\n");
  }
  return status;
}

int run(int argument_count, char** arguments) {
  Request request;
  parse_request(argument_count, arguments, request);
  if (runs_one_at_a_time(request.settings.order)) make_repeatable(arguments);

  if (request.frames != 0) remember_own();
  plan::Plan plan;
  trace::Problem problem;
  if (!plan.load(request.trace, request.load, problem)) {
    dprintf(STDERR_FILENO, "replay: %s\n", problem.text);
    _exit(exit_internal);
  }
  ReplayContext context{plan, request.settings};
  const auto& calls = plan.image(0).totals.calls;
  std::uint64_t maximum = plan.image(0).live_objects;  // which are freed at the end
  for (const plan::Kind kind : {plan::Kind::malloc, plan::Kind::calloc, plan::Kind::aligned,
                                plan::Kind::realloc, plan::Kind::realloc, plan::Kind::free}) {
    maximum += calls[static_cast<std::size_t>(kind)];
  }
  if (const int error = context.log.open(request.addresses, maximum, request.frames)) {
    fail_internal("cannot write the addresses", error);
  }
  ImageRun first{context, 0, 0};
  first.run();
  context.clock.compare();
  if (const int error = context.log.close()) fail_internal("cannot write the addresses", error);
  if (const int error = write_report(context, first)) {
    fail_internal("cannot write the result", error);
  }
  return exit_status(context);
}

}  // namespace
}  // namespace replay
}  // namespace ts

int main(int argument_count, char** arguments) {
  // Not by return: the allocator's exit handlers are not part of the replay.
  _exit(ts::replay::run(argument_count, arguments));
}
