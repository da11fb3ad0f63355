// /proc/PID/status and smaps_rollup; see memory_sampler.h.
#include "measure/memory_sampler.h"

#include <algorithm>

#include "launch/tree_end.h"

namespace ts {
namespace {

constexpr Nanoseconds first_sample_after_ns =
    1 * ns_per_ms;                           // short programs should be sampled at least once
constexpr std::int64_t bytes_per_kb = 1024;  // the kernel's "kB"

struct ResidentSize {
  std::int64_t peak_bytes = not_sampled;
  std::int64_t now_bytes = not_sampled;  // both remain unset for an ended process
};

ResidentSize read_resident(const char* status_path) {
  ResidentSize size;
  PieceReader status{status_path};
  while (const char* line = status.next('\n')) {
    if (const auto peak = number_after(line, "VmHWM:"); peak >= 0) {
      size.peak_bytes = peak * bytes_per_kb;
    }
    if (const auto now = number_after(line, "VmRSS:"); now >= 0) {
      size.now_bytes = now * bytes_per_kb;
      break;  // the kernel prints it after the peak
    }
  }
  return size;
}

std::int64_t read_proportional(pid_t process) {
  char path[64];
  format(path, sizeof path, "/proc/%d/smaps_rollup", process);
  return bytes_after(path, "Pss:");
}

static_assert(not_sampled == -1);

}  // namespace

MemorySampler::MemorySampler(const SamplingOptions& options, Nanoseconds start_ns)
    : start_ns_{start_ns},
      resident_pace_{options.interval_ns,
                     options.interval_ns == 0
                         ? never_ns
                         : start_ns + std::min(options.interval_ns, first_sample_after_ns)},
      proportional_pace_{resident_pace_},
      tree_resident_{options.series_points} {}

void MemorySampler::sample_resident(const ProcessTree& tree) {
  std::int64_t sum_bytes = not_sampled;
  for (const pid_t process : tree.processes()) {
    char path[64];
    format(path, sizeof path, "/proc/%d/status", process);
    const ResidentSize size = read_resident(path);
    if (size.now_bytes == not_sampled) continue;
    sum_bytes = std::max<std::int64_t>(sum_bytes, 0) + size.now_bytes;
    process_peak_bytes_ = std::max(process_peak_bytes_, size.peak_bytes);
  }
  tree_peak_resident_bytes_ = std::max(tree_peak_resident_bytes_, sum_bytes);
  if (sum_bytes == not_sampled) return;
  ++samples_;
  tree_resident_.add({now_ns() - start_ns_, sum_bytes});
}

void MemorySampler::sample_proportional(const ProcessTree& tree) {
  std::int64_t sum_bytes = not_sampled;
  for (const pid_t process : tree.processes()) {
    const std::int64_t size_bytes = read_proportional(process);
    if (size_bytes != not_sampled) sum_bytes = std::max<std::int64_t>(sum_bytes, 0) + size_bytes;
  }
  tree_peak_proportional_bytes_ = std::max(tree_peak_proportional_bytes_, sum_bytes);
}

void MemorySampler::sample(ProcessTree& tree) {
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

}  // namespace ts
