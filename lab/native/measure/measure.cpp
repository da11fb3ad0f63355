// measure: runs one program and reports, as one line of JSON, the time and memory that it took.
//
// At exec the kernel counts the launcher's memory in the program's peak, so a launcher written in
// Python would report its own size for every small program. This one is static and a few hundred KB
// small. A crash, a hang and a program that does not exist are results; repeating, comparing and
// interpreting are up to the lab. lab/native/README.md describes every field of the line.
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "common/json_line.h"
#include "launch/launch.h"
#include "launch/options.h"
#include "launch/tree_end.h"
#include "measure/memory_sampler.h"
#include "measure/preload_proof.h"

namespace ts {

const char* tool_name() { return "measure"; }

namespace {

// Too large for the stack of a small program, and needed from start to end.
Options options;
SamplingOptions sampling;
StartedChild child;

Nanoseconds to_ns(const timeval& time) {
  return time.tv_sec * ns_per_second + time.tv_usec * ns_per_us;
}

// Sums over the root, all that it waited for, and the orphans that we inherited; the peak is that
// of the largest single process.
struct Usage {
  Nanoseconds user_ns = 0;
  Nanoseconds system_ns = 0;
  std::int64_t peak_rss_bytes = 0;
  std::int64_t minor_faults = 0;
  std::int64_t major_faults = 0;
  std::int64_t voluntary_switches = 0;
  std::int64_t involuntary_switches = 0;

  void add(const rusage& usage) {
    user_ns += to_ns(usage.ru_utime);
    system_ns += to_ns(usage.ru_stime);
    peak_rss_bytes = std::max<std::int64_t>(peak_rss_bytes, usage.ru_maxrss * 1024);
    minor_faults += usage.ru_minflt;
    major_faults += usage.ru_majflt;
    voluntary_switches += usage.ru_nvcsw;
    involuntary_switches += usage.ru_nivcsw;
  }
};

// From the start of the program to the end of its last process: one loop decides about waiting,
// sampling, timeouts and signals, so that no wait can hide another and no process outlives the run.
class Supervisor {
 public:
  Supervisor()
      : end_{options.timeout_ns, child.exec_ns},
        sampler_{sampling, child.exec_ns},
        preload_proof_{options, child.exec_ns} {}

  // Returns when no process is left (or none that can be ended).
  void run() {
    while (reap() && !end_.gives_up()) {
      end_.pass_deadline_if_due();
      const Nanoseconds now = now_ns();
      if (preload_proof_.due_ns() <= now && !end_.root_ended()) preload_proof_.look(child.pid);
      if (sampler_.due_ns() <= now) sampler_.sample(end_.tree());
      end_.wait(
          std::min(end_.root_ended() ? never_ns : preload_proof_.due_ns(), sampler_.due_ns()));
    }
  }

  void report(int descriptor) const {
    JsonLine line{descriptor};
    begin_report(line, "tsmalloc-measure/1", options, child, end_);
    // The number, or null for a program that never ran.
    const auto add_measured = [&line](const char* name, std::int64_t value) {
      line.add_if(child.error_number == 0, name, value);
    };
    add_measured("pid", child.pid);
    add_measured("wall_ns", end_.wall_ns());
    add_measured("user_ns", usage_.user_ns);
    add_measured("system_ns", usage_.system_ns);
    add_measured("minor_faults", usage_.minor_faults);
    add_measured("major_faults", usage_.major_faults);
    add_measured("voluntary_switches", usage_.voluntary_switches);
    add_measured("involuntary_switches", usage_.involuntary_switches);
    // Both are high-water marks of single processes. The kernel keeps the one reported at the end in
    // per-CPU parts, so it can lag behind the one that it adds up exactly when it is sampled.
    add_measured("peak_rss_bytes", std::max(usage_.peak_rss_bytes, sampler_.process_peak_bytes()));
    line.add_unless_negative("tree_peak_rss_bytes", sampler_.tree_peak_resident_bytes());
    line.add_unless_negative("tree_peak_pss_bytes", sampler_.tree_peak_proportional_bytes());
    line.add("samples", sampler_.samples());
    line.begin_list("preloaded");
    for (std::size_t i = 0; i < options.preload_count; ++i) {
      line.begin_object();
      line.add_text("path", options.preloads[i].path);
      if (preload_proof_.verdict(i) == Mapped::unknown) {
        line.add_null("mapped");
      } else {
        line.add_bool("mapped", preload_proof_.verdict(i) == Mapped::yes);
      }
      line.end_object();
    }
    line.end_list();
    line.add("sampling_ns", sampler_.cost_ns() + preload_proof_.cost_ns());
    if (sampling.series_points > 0) {
      line.begin_list("series");
      for (const auto& point : sampler_.tree_resident().points()) {
        line.add_row(point.time_ns, point.bytes);
      }
      line.end_list();
    }
    finish_report(line);
  }

 private:
  // False when there is no child left.
  bool reap() {
    int status = 0;
    rusage usage{};
    pid_t ended = 0;
    while ((ended = wait4(-1, &status, WNOHANG, &usage)) > 0) {
      usage_.add(usage);
      end_.note_end(ended == child.pid, status);
    }
    return ended == 0;  // otherwise ECHILD
  }

  TreeEnd end_;
  Usage usage_;
  MemorySampler sampler_;
  PreloadProof preload_proof_;
};

constexpr ToolHelp help = {
    .purpose =
        R"(Runs COMMAND, waits for it and for all its processes, and writes one line of JSON about its
time and memory.
)",
    .own_options =
        R"(  --sample-ms N      sample the memory of all processes every N ms, less often if that would
                     cost over 1% of a core (default 10; 0: never)
  --series N         write the memory of all processes over time, as at most N of these samples
)",
    .exit_status =
        R"(Exit status: 0 a line was written, whatever COMMAND did; 1 usage error; 125 measure itself failed.
)"};

constexpr Option own_options[] = {
    {"sample-ms",
     [](const char* argument) {
       sampling.interval_ns = parse_time("--sample-ms", argument, ns_per_ms);
     }},
    {"series", [](const char* argument) {
       sampling.series_points =
           static_cast<std::size_t>(parse_whole("--series", argument, Series::max_points));
     }}};

int measure(int argument_count, char** arguments) {
  fill_standard_descriptors();
  parse_options(argument_count, arguments, help, own_options, options);
  ProcessTree::require_kernel_support();
  const int output = open_output(options);
  launch(options, child);
  static Supervisor supervisor;
  if (child.error_number == 0) supervisor.run();
  supervisor.report(output);
  return 0;
}

}  // namespace
}  // namespace ts

int main(int argument_count, char** arguments) { return ts::measure(argument_count, arguments); }
