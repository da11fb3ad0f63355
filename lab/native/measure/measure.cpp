// measure: runs one program and reports, as one line of JSON, the time and memory that it took.
//
// Why it exists: at exec the kernel folds the launcher's memory into the program's peak, so a
// launcher written in Python reports its own size for every small program. This one is static and a
// few hundred KB small (`floor_bytes`). What it refuses to do: judge. A crash, a hang and a program
// that does not exist are results; repeating, comparing and interpreting them is the lab's affair.
// lab/native/README.md describes every field of the line.
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>

#include "common/json_line.h"
#include "launch/child.h"
#include "launch/options.h"
#include "launch/process_tree.h"
#include "launch/report.h"
#include "measure/private_cgroup.h"
#include "measure/supervisor.h"

namespace ts {

const char* tool_name() { return "measure"; }

namespace {

// Too large for the stack of a small program, and needed from start to end.
Options options;
SamplingOptions sampling;
StartedChild child;

// The number, or null for a program that never ran.
void add_measured(JsonLine& line, const char* name, std::int64_t value) {
  line.add_if(child.error_number == 0, name, value);
}

void write_usage(JsonLine& line, const Usage& usage) {
  add_measured(line, "user_ns", usage.user_ns);
  add_measured(line, "system_ns", usage.system_ns);
  add_measured(line, "minor_faults", usage.minor_faults);
  add_measured(line, "major_faults", usage.major_faults);
  add_measured(line, "voluntary_switches", usage.voluntary_switches);
  add_measured(line, "involuntary_switches", usage.involuntary_switches);
}

// Both are high-water marks of single processes. The kernel keeps the one that it reports at the
// end in per-CPU shares, so it can lag behind the one that it adds up exactly when it is sampled.
void write_peak(JsonLine& line, std::int64_t reported_bytes, std::int64_t sampled_bytes) {
  add_measured(line, "peak_rss_bytes", std::max(reported_bytes, sampled_bytes));
  if (child.error_number != 0) return line.add_null("peak_rss_source");
  line.add_text("peak_rss_source", sampled_bytes > reported_bytes ? "sampled-hwm" : "wait4");
}

void write_memory(JsonLine& line, const Usage& usage, const MemorySampler& sampler,
                  std::int64_t cgroup_peak_bytes) {
  write_peak(line, usage.peak_rss_bytes, sampler.process_peak_bytes());
  line.add_unless_negative("root_hwm_bytes", sampler.root_peak_bytes());
  line.add_unless_negative("tree_peak_rss_bytes", sampler.tree_peak_resident_bytes());
  line.add_unless_negative("tree_peak_pss_bytes", sampler.tree_peak_proportional_bytes());
  line.add_unless_negative("cgroup_peak_bytes", cgroup_peak_bytes);
  line.add("samples", sampler.samples());
  line.add("pss_samples", sampler.proportional_samples());
}

void write_preloads(JsonLine& line, const PreloadProof& proof) {
  line.begin_list("preloaded");
  for (std::size_t i = 0; i < options.preload_count; ++i) {
    line.begin_object();
    line.add_text("path", options.preloads[i].path);
    if (proof.verdict(i) == Mapped::unknown) {
      line.add_null("mapped");
    } else {
      line.add_bool("mapped", proof.verdict(i) == Mapped::yes);
    }
    line.end_object();
  }
  line.end_list();
}

void write_series(JsonLine& line, const Series& series) {
  line.begin_list("series");
  for (const Series::Point& point : series.points()) line.add_row(point.time_ns, point.bytes);
  line.end_list();
}

void write_report(int descriptor, const Supervisor& supervisor, std::int64_t cgroup_peak_bytes) {
  JsonLine line{descriptor};
  begin_report(line, "tsmalloc-measure/1", options, child, supervisor.end());
  add_measured(line, "pid", child.pid);
  add_measured(line, "wall_ns", supervisor.wall_ns());
  write_usage(line, supervisor.usage());
  write_memory(line, supervisor.usage(), supervisor.sampler(), cgroup_peak_bytes);
  write_preloads(line, supervisor.preload_proof());
  line.add("sampling_ns", supervisor.sampler().cost_ns() + supervisor.preload_proof().cost_ns());
  line.add("floor_bytes", own_peak_bytes());
  if (sampling.series_points > 0) write_series(line, supervisor.sampler().tree_resident());
  finish_report(line);
}

constexpr ToolHelp help = {
    .purpose =
        R"(Runs COMMAND, waits for it and for what it leaves running, and writes one line of JSON about its
time and memory.
)",
    .own_options =
        R"(  --sample-ms N      look at the memory of all processes every N ms, more rarely where that would
                     cost over 1 % of a core (default 10; 0: never)
  --series N         write the memory of all processes over time, as at most N of these samples
)",
    .exit_status =
        R"(Exit status: 0 a line was written, whatever COMMAND did; 1 wrong usage; 125 measure itself failed.
)"};

constexpr OwnOption own_options[] = {
    {"sample-ms",
     [](const char* argument) {
       sampling.interval_ns = parse_time("--sample-ms", argument, ns_per_ms);
     }},
    {"series", [](const char* argument) {
       sampling.series_points =
           static_cast<std::size_t>(parse_whole("--series", argument, Series::most_points));
     }}};

int measure(int argument_count, char** arguments) {
  fill_standard_descriptors();
  parse_options(argument_count, arguments, help, own_options, options);
  ProcessTree::require_kernel_support();
  const int output = open_output(options);
  ChildSetup setup;
  const bool is_ready =
      open_redirections(options, setup, child);  // may wait for a FIFO, so Ctrl-C must still work
  setup.original_signal_mask = block_awaited_signals(Notice::ends);
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    fail_internal("cannot become a child subreaper", errno);
  }
  PrivateCgroup cgroup;
  setup.cgroup_descriptor = cgroup.join_descriptor();
  if (is_ready) start_child(options, setup, child);
  static Supervisor supervisor{options, sampling, child};
  const bool is_started = child.error_number == 0;
  if (is_started) supervisor.run();
  const std::int64_t cgroup_peak_bytes =
      child.is_in_cgroup && is_started ? cgroup.peak_bytes() : -1;
  cgroup.remove();
  write_report(output, supervisor, cgroup_peak_bytes);
  return 0;
}

}  // namespace
}  // namespace ts

int main(int argument_count, char** arguments) { return ts::measure(argument_count, arguments); }
