// measure: runs one program and reports, as one line of JSON, the time and memory that it took.
//
// Why it exists: at exec the kernel folds the launcher's memory into the program's peak, so a
// launcher written in Python reports its own size for every small program. This one is static and a
// few hundred KB small (`floor_bytes`). What it refuses to do: judge. A crash, a hang and a program
// that does not exist are results; repeating, comparing and interpreting them is the lab's affair.
// tools/README.md describes every field of the line.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "launch/child.h"
#include "launch/json_line.h"
#include "launch/options.h"
#include "measure/private_cgroup.h"
#include "launch/process_tree.h"
#include "measure/supervisor.h"

namespace ts {
namespace {

// Too large for the stack of a small program, and needed from start to end.
Options options;
StartedChild child;

// The number, or null for a program that never ran.
void add_measured(JsonLine& line, const char* name, std::int64_t value) {
  line.add_unless_negative(name, child.error_number == 0 ? value : -1);
}

void write_outcome(JsonLine& line, const Outcome& outcome) {
  const bool exited = outcome.root_ended && WIFEXITED(outcome.wait_status);
  const bool signalled = outcome.root_ended && WIFSIGNALED(outcome.wait_status);
  line.add_unless_negative("exit_code", exited ? WEXITSTATUS(outcome.wait_status) : -1);
  line.add_unless_negative("signal", signalled ? WTERMSIG(outcome.wait_status) : -1);
  line.add_bool("timed_out", outcome.timed_out);
  line.add_bool("interrupted", outcome.interrupted);
  line.add("left_behind", outcome.left_behind);
  add_measured(line, "wall_ns", outcome.wall_ns);
  add_measured(line, "user_ns", outcome.usage.user_ns);
  add_measured(line, "system_ns", outcome.usage.system_ns);
  add_measured(line, "minor_faults", outcome.usage.minor_faults);
  add_measured(line, "major_faults", outcome.usage.major_faults);
  add_measured(line, "voluntary_switches", outcome.usage.voluntary_switches);
  add_measured(line, "involuntary_switches", outcome.usage.involuntary_switches);
}

// Both are high-water marks of single processes. The kernel keeps the one that it reports at the
// end in per-CPU shares, so it can lag behind the one that it adds up exactly when it is sampled.
void write_peak(JsonLine& line, std::int64_t reported_bytes, std::int64_t sampled_bytes) {
  if (child.error_number != 0) {
    line.add_null("peak_rss_bytes");
    line.add_null("peak_rss_source");
  } else {
    line.add("peak_rss_bytes", std::max(reported_bytes, sampled_bytes));
    line.add_text("peak_rss_source", sampled_bytes > reported_bytes ? "sampled-hwm" : "wait4");
  }
}

void write_memory(JsonLine& line, const Outcome& outcome, const MemorySampler& sampler,
                  std::int64_t cgroup_peak_bytes) {
  write_peak(line, outcome.usage.peak_rss_bytes, sampler.process_peak_bytes());
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

void write_spawn_error(JsonLine& line) {
  if (child.error_number == 0) {
    line.add_null("spawn_error");
    return;
  }
  line.key("spawn_error");
  line.begin_object();
  line.add("errno", child.error_number);
  line.add_text("message", child.message);
  line.end_object();
}

void write_report(int descriptor, const Supervisor& supervisor, std::int64_t cgroup_peak_bytes) {
  JsonLine line{descriptor};
  line.begin_object();
  line.add_text("schema", "tsmalloc-measure/1");
  write_spawn_error(line);
  add_measured(line, "pid", child.pid);
  line.add_unless_negative("timeout_ns", options.timeout_ns == 0 ? -1 : options.timeout_ns);
  write_outcome(line, supervisor.outcome());
  write_memory(line, supervisor.outcome(), supervisor.sampler(), cgroup_peak_bytes);
  write_preloads(line, supervisor.preload_proof());
  line.add("sampling_ns", supervisor.sampler().cost_ns() + supervisor.preload_proof().cost_ns());
  line.add("floor_bytes", own_peak_bytes());
  line.end_object();
  // A reader that has gone is a failure to write, not a reason to vanish.
  static_cast<void>(signal(SIGPIPE, SIG_IGN));
  if (const int error_number = line.finish(); error_number != 0) {
    fail_internal("cannot write the report", error_number);
  }
}

int open_output() {
  if (options.output == nullptr) return STDOUT_FILENO;
  const int descriptor = open(options.output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor >= 0) return descriptor;
  dprintf(STDERR_FILENO, "measure: cannot write %s: %s.\n  Name another file with --output.\n",
          options.output, strerrordesc_np(errno));
  _exit(exit_usage);
}

// If we were started without standard streams, the files that we open would take their numbers and
// leak into the child.
void fill_standard_descriptors() {
  int descriptor = 0;
  do {
    descriptor = open("/dev/null", O_RDWR);
  } while (descriptor >= 0 && descriptor <= STDERR_FILENO);
  if (descriptor > STDERR_FILENO) close(descriptor);
}

int measure(int argument_count, char** arguments) {
  fill_standard_descriptors();
  parse_options(argument_count, arguments, options);
  ProcessTree::require_kernel_support();
  const int output = open_output();
  ChildSetup setup;
  const bool is_ready =
      open_redirections(options, setup, child);  // may wait for a FIFO, so Ctrl-C must still work
  setup.original_signal_mask = block_awaited_signals();
  if (prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) {
    fail_internal("cannot become a child subreaper", errno);
  }
  PrivateCgroup cgroup;
  setup.cgroup_descriptor = cgroup.join_descriptor();
  if (is_ready) start_child(options, setup, child);
  static Supervisor supervisor{options, child};
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
