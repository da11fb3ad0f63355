// measure: runs one program and reports, as one line of JSON, the time and memory that it took.
//
// At exec the kernel counts the launcher's memory in the program's peak, so a launcher written in
// Python would report its own size for every small program. This one is static and a few hundred KB
// small. A crash, a hang and a program that does not exist are results; repeating, comparing and
// interpreting are up to the lab. lab/native/README.md describes every field of the line.
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "common/json_line.h"
#include "common/system.h"
#include "launch/launch.h"
#include "launch/options.h"

namespace ts {

const char* tool_name() { return "measure"; }

namespace {

// --- the memory of a running process tree ---
//
// The kernel reports the peak of each process after its end, but not that of a tree, so that sum
// can only be sampled. Sampling costs at most 1% of one core: a process that is slow to sample is
// sampled less often, and the cost is reported.

constexpr std::int64_t not_sampled = -1;

// Spaces a repeated job so that it takes at most one part in `shares` of the time.
class Pace {
 public:
  Pace(Nanoseconds interval_ns, Nanoseconds first_due_ns)
      : interval_ns_{interval_ns}, due_ns_{first_due_ns} {}
  Nanoseconds due_ns() const { return due_ns_; }
  void done(Nanoseconds cost_ns, Nanoseconds now) {
    const Nanoseconds rest_ns = cost_ns * shares;
    due_ns_ = now + (rest_ns > interval_ns_ ? rest_ns : interval_ns_);
  }

 private:
  static constexpr Nanoseconds shares =
      200;  // two jobs, resident and proportional size: together 1%
  Nanoseconds interval_ns_;
  Nanoseconds due_ns_;
};

// A quantity over the time of a run, in a bounded number of points, since the length of the run is
// not known beforehand. Each point was measured; when there is no room for another, every other one
// is dropped, and from then on only every second one is taken.
class Series {
 public:
  struct Point {
    Nanoseconds time_ns;  // since the start of the run
    std::int64_t bytes;
  };
  static constexpr std::size_t max_points = 10'000;

  // capacity 0: takes nothing. At most max_points.
  explicit Series(std::size_t capacity) : capacity_{capacity} {}

  void add(Point point) {
    if (capacity_ == 0 || offered_++ % stride_ != 0) return;
    if (count_ == capacity_) halve();
    // The point that caused the halving is itself every other one, unless their number was odd.
    if ((offered_ - 1) % stride_ == 0) points_[count_++] = point;
  }

  std::span<const Point> points() const { return {points_, count_}; }

 private:
  void halve() {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < count_; i += 2) points_[kept++] = points_[i];
    count_ = kept;
    stride_ *= 2;
  }

  // Invariant: points_[i] is the offer number i * stride_, counted from 0.
  std::size_t capacity_;
  std::size_t count_ = 0;
  std::size_t offered_ = 0;
  std::size_t stride_ = 1;
  Point points_[max_points] = {};
};

struct SamplingOptions {
  Nanoseconds interval_ns = 10 * ns_per_ms;  // 0: never
  std::size_t series_points = 0;             // 0: no series
};

constexpr Nanoseconds first_sample_after_ns =
    1 * ns_per_ms;                           // short programs should be sampled at least once
constexpr std::int64_t bytes_per_kb = 1024;  // the kernel's "kB"

class MemorySampler {
 public:
  MemorySampler(const SamplingOptions& options, Nanoseconds start_ns)
      : start_ns_{start_ns},
        resident_pace_{options.interval_ns,
                       options.interval_ns == 0
                           ? never_ns
                           : start_ns + std::min(options.interval_ns, first_sample_after_ns)},
        proportional_pace_{resident_pace_},
        tree_resident_{options.series_points} {}

  Nanoseconds due_ns() const { return resident_pace_.due_ns(); }

  void sample(ProcessTree& tree) {
    const Nanoseconds begin = cpu_time_ns();
    tree.refresh();
    sample_resident(tree);
    const Nanoseconds middle = cpu_time_ns();
    resident_pace_.done(middle - begin, now_ns());
    Nanoseconds end = middle;
    if (proportional_pace_.due_ns() <= now_ns()) {
      sample_proportional(tree);
      end = cpu_time_ns();
      proportional_pace_.done(end - middle, now_ns());
    }
    cost_ns_ += end - begin;
  }

  // All in bytes, or not_sampled. process_peak: the highest high-water mark of any process.
  std::int64_t process_peak_bytes() const { return process_peak_bytes_; }
  std::int64_t tree_peak_resident_bytes() const { return tree_peak_resident_bytes_; }
  std::int64_t tree_peak_proportional_bytes() const { return tree_peak_proportional_bytes_; }
  const Series& tree_resident() const { return tree_resident_; }
  std::int64_t samples() const { return samples_; }
  Nanoseconds cost_ns() const { return cost_ns_; }

 private:
  void sample_resident(const ProcessTree& tree) {
    std::int64_t sum_bytes = not_sampled;
    for (const pid_t process : tree.processes()) {
      char path[64];
      format(path, sizeof path, "/proc/%d/status", process);
      PieceReader status{path};
      while (const char* line = status.next('\n')) {  // none for an ended process
        if (const auto peak = number_after(line, "VmHWM:"); peak >= 0) {
          process_peak_bytes_ = std::max(process_peak_bytes_, peak * bytes_per_kb);
        }
        if (const auto now = number_after(line, "VmRSS:"); now >= 0) {
          sum_bytes = std::max<std::int64_t>(sum_bytes, 0) + now * bytes_per_kb;
          break;  // the kernel prints it after the peak
        }
      }
    }
    tree_peak_resident_bytes_ = std::max(tree_peak_resident_bytes_, sum_bytes);
    if (sum_bytes == not_sampled) return;
    ++samples_;
    tree_resident_.add({now_ns() - start_ns_, sum_bytes});
  }

  void sample_proportional(const ProcessTree& tree) {
    std::int64_t sum_bytes = not_sampled;
    for (const pid_t process : tree.processes()) {
      char path[64];
      format(path, sizeof path, "/proc/%d/smaps_rollup", process);
      const std::int64_t size_bytes = bytes_after(path, "Pss:");
      if (size_bytes >= 0) sum_bytes = std::max<std::int64_t>(sum_bytes, 0) + size_bytes;
    }
    tree_peak_proportional_bytes_ = std::max(tree_peak_proportional_bytes_, sum_bytes);
  }

  Nanoseconds start_ns_;
  Pace resident_pace_;
  Pace proportional_pace_;  // walks page tables, so much more expensive for a big process
  std::int64_t process_peak_bytes_ = not_sampled;
  std::int64_t tree_peak_resident_bytes_ = not_sampled;
  std::int64_t tree_peak_proportional_bytes_ = not_sampled;
  Series tree_resident_;
  std::int64_t samples_ = 0;
  Nanoseconds cost_ns_ = 0;
};

// --- whether each library that we asked the loader to preload has been loaded ---
//
// The loader ignores LD_PRELOAD without failing (for a static program, another architecture, a
// set-user-ID file), and a comparison of one allocator with itself looks perfectly plausible. A
// sample may come before the loader has got that far, so absence is claimed only with evidence that
// the time for loading preloads has passed.

enum class Mapped { unknown, no, yes };

constexpr Nanoseconds first_wait_ns =
    300 * ns_per_us;  // the loader maps preloads first of all; /bin/true lives about 1 ms

// "address permissions offset device inode   path": the path starts at the first slash or bracket.
const char* path_of(const char* maps_line) {
  const char* const path = std::strpbrk(maps_line, "/[");
  return path != nullptr ? path : "";
}

bool is_same_library(const char* asked, const char* mapped) {
  const bool was_searched_by_loader = std::strchr(asked, '/') == nullptr;
  return std::strcmp(asked, was_searched_by_loader ? base_name(mapped) : mapped) == 0;
}

class PreloadProof {
 public:
  // `options` must outlive the proof.
  PreloadProof(const Options& options, Nanoseconds start_ns)
      : options_{options},
        wait_ns_{first_wait_ns},
        due_ns_{options.preload_count == 0 ? never_ns : start_ns + first_wait_ns} {}

  // When to sample next; never once every answer is known.
  Nanoseconds due_ns() const { return due_ns_; }

  // Two kinds of evidence that a missing library will not be loaded later: exec maps the vdso last,
  // so a program without an interpreter by then is static; and glibc's loader maps the preloads
  // before the libraries that the program needs, one of them libc. It takes two samples: the maps
  // are read piece by piece, without stopping the program, which may exec or change its mappings in
  // between.
  void look(pid_t process) {
    const Nanoseconds begin = cpu_time_ns();
    const MapsSummary summary = read_maps(process);
    const bool is_static = summary.is_complete && !summary.has_interpreter;
    bool all_known = true;
    for (std::size_t i = 0; i < options_.preload_count; ++i) {
      if (verdicts_[i] == Mapped::unknown && (is_static || summary.has_libc)) {
        if (is_missing_[i]) verdicts_[i] = Mapped::no;
        is_missing_[i] = true;
      }
      if (verdicts_[i] == Mapped::unknown) all_known = false;
    }
    wait_ns_ *= 2;
    due_ns_ = all_known ? never_ns : now_ns() + wait_ns_;
    cost_ns_ += cpu_time_ns() - begin;
  }

  Mapped verdict(std::size_t index) const { return verdicts_[index]; }
  Nanoseconds cost_ns() const { return cost_ns_; }

 private:
  struct MapsSummary {
    bool is_complete = false;  // the kernel has mapped all that exec maps
    bool has_interpreter = false;
    bool has_libc = false;
  };

  MapsSummary read_maps(pid_t process) {
    char path[64];
    char executable[PATH_MAX];
    MapsSummary summary;
    format(path, sizeof path, "/proc/%d/exe", process);
    const ssize_t length = readlink(path, executable, sizeof executable - 1);
    if (length < 0) return summary;
    executable[length] = '\0';
    format(path, sizeof path, "/proc/%d/maps", process);
    PieceReader maps{path};
    while (const char* line = maps.next('\n')) {
      const char* const mapped = path_of(line);
      if (std::strcmp(mapped, "[vdso]") == 0) summary.is_complete = true;
      if (*mapped != '/') continue;
      note_mapped(mapped);
      if (std::strcmp(mapped, executable) != 0) summary.has_interpreter = true;
      if (std::strcmp(base_name(mapped), "libc.so.6") == 0) summary.has_libc = true;
    }
    return summary;
  }

  void note_mapped(const char* path) {
    for (std::size_t i = 0; i < options_.preload_count; ++i) {
      if (is_same_library(options_.preloads[i].resolved, path)) verdicts_[i] = Mapped::yes;
    }
  }

  const Options& options_;
  Nanoseconds wait_ns_;
  Nanoseconds due_ns_;
  Nanoseconds cost_ns_ = 0;
  Mapped verdicts_[max_preloads] = {};
  bool is_missing_[max_preloads] = {};  // at the last sample, after the time for loading it
};

// Too large for the stack of a small program, and needed from start to end.
Options options;
SamplingOptions sampling;
StartedChild child;

Nanoseconds to_ns(const timeval& time) {
  return time.tv_sec * ns_per_second + time.tv_usec * ns_per_us;
}

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
    add_measured("user_ns", to_ns(usage_.ru_utime));
    add_measured("system_ns", to_ns(usage_.ru_stime));
    add_measured("minor_faults", usage_.ru_minflt);
    add_measured("major_faults", usage_.ru_majflt);
    add_measured("voluntary_switches", usage_.ru_nvcsw);
    add_measured("involuntary_switches", usage_.ru_nivcsw);
    // Both are high-water marks of single processes. The kernel keeps the one reported at the end
    // in per-CPU parts, so it can lag behind the one that it adds up exactly when it is sampled.
    add_measured("peak_rss_bytes",
                 std::max<std::int64_t>(usage_.ru_maxrss * 1024, sampler_.process_peak_bytes()));
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
      timeradd(&usage_.ru_utime, &usage.ru_utime, &usage_.ru_utime);
      timeradd(&usage_.ru_stime, &usage.ru_stime, &usage_.ru_stime);
      usage_.ru_maxrss = std::max(usage_.ru_maxrss, usage.ru_maxrss);
      usage_.ru_minflt += usage.ru_minflt;
      usage_.ru_majflt += usage.ru_majflt;
      usage_.ru_nvcsw += usage.ru_nvcsw;
      usage_.ru_nivcsw += usage.ru_nivcsw;
      end_.note_end(ended == child.pid, status);
    }
    return ended == 0;  // otherwise ECHILD
  }

  TreeEnd end_;
  // Sums over the root, all that it waited for, and the orphans that we inherited; the peak is that
  // of the largest single process.
  rusage usage_{};
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
     [](const char* argument) { sampling.interval_ns = parse_time(argument, ns_per_ms); }},
    {"series", [](const char* argument) {
       sampling.series_points = parse_whole(argument, Series::max_points);
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
