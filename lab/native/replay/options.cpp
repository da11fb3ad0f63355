// Parsing; see settings.h.
#include "launch/options.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <iterator>

#include "replay/settings.h"

namespace ts::replay {
namespace {

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

[[noreturn]] void print_help() {
  dprintf(STDOUT_FILENO, "%s", help_text);
  _exit(0);
}

Request* asked = nullptr;  // while it is parsed

struct NamedOrder {
  const char* name;
  Order order;
  Discipline discipline;
};
constexpr NamedOrder orders[] = {
    {"asap", Order::asap, Discipline::round_robin},
    {"paced", Order::paced, Discipline::round_robin},
    {"recorded", Order::recorded, Discipline::round_robin},
    {"round-robin", Order::scheduled, Discipline::round_robin},
    {"lottery", Order::scheduled, Discipline::lottery},
    {"stride", Order::scheduled, Discipline::stride},
};
constexpr const char* touches[] = {"none", "first", "page", "all"};  // as in Touch

void set_order(const char* name) {
  for (const NamedOrder& known_order : orders) {
    if (std::strcmp(name, known_order.name) != 0) continue;
    asked->schedule = known_order.name;
    asked->settings.order = known_order.order;
    asked->settings.discipline = known_order.discipline;
    asked->load.with_times = known_order.order == Order::paced;
    return;
  }
  fail_usage({"--schedule must be asap, paced, recorded, round-robin, lottery or stride, not '",
              name, "'."});
}

void set_touch(const char* name) {
  for (std::size_t i = 0; i < std::size(touches); ++i) {
    if (std::strcmp(name, touches[i]) != 0) continue;
    asked->touch = touches[i];
    asked->settings.touch = static_cast<Touch>(i);
    return;
  }
  fail_usage({"--touch must be none, first, page or all, not '", name, "'."});
}

void set_tickets(const char* text) {
  if (const char* const wrong = asked->tickets.parse(text)) {
    fail_usage({"--tickets ", text, ": ", wrong});
  }
}

std::uint64_t at_least_one(const char* name, const char* text, std::int64_t maximum) {
  const std::int64_t number = parse_whole(name, text, maximum);
  if (number == 0) fail_usage({name, " must be at least 1."});
  return static_cast<std::uint64_t>(number);
}

constexpr std::int64_t max_quantum = INT64_C(1'000'000'000'000);
constexpr std::int64_t max_listed = 1'000'000;

constexpr Option known[] = {
    {"schedule", set_order},
    {"image",
     [](const char* argument) {
       asked->load.image = parse_whole("--image", argument, trace::max_images);
     }},
    {"window",
     [](const char* argument) {
       asked->load.window =
           static_cast<std::uint64_t>(parse_whole("--window", argument, max_quantum));
     }},
    {"quantum",
     [](const char* argument) {
       asked->settings.quantum = at_least_one("--quantum", argument, max_quantum);
     }},
    {"tickets", set_tickets},
    {"seed",
     [](const char* argument) {
       asked->settings.seed =
           static_cast<std::uint64_t>(parse_whole("--seed", argument, INT64_MAX));
     }},
    {"addresses", [](const char* argument) { asked->addresses = argument; }},
    {"frames",
     [](const char* argument) { asked->frames = at_least_one("--frames", argument, max_listed); }},
    {"touch", set_touch},
    {"verify", [](const char*) { asked->settings.verify = true; }, true},
    {"latency", [](const char*) { asked->settings.latency = true; }, true},
    {"samples",
     [](const char* argument) {
       asked->settings.samples = at_least_one("--samples", argument, max_listed);
     }},
    {"settle",
     [](const char* argument) {
       asked->settings.settle_ns = parse_time("--settle", argument, ns_per_second);
     }},
    {"help", [](const char*) { print_help(); }, true},
};

}  // namespace

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

}  // namespace ts::replay
