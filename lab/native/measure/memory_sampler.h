// Samples the memory of a running process tree.
//
// The kernel reports the peak of each process after its end, but not that of a tree, so that sum
// can only be sampled. Sampling costs at most 1% of one core: a process that is slow to sample is
// sampled less often, and the cost is reported.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/system.h"
#include "launch/tree_end.h"

namespace ts {

inline constexpr std::int64_t not_sampled = -1;

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

inline constexpr Nanoseconds first_sample_after_ns =
    1 * ns_per_ms;  // short programs should be sampled at least once
inline constexpr std::int64_t bytes_per_kb = 1024;  // the kernel's "kB"

struct ResidentSize {
  std::int64_t peak_bytes = not_sampled;
  std::int64_t now_bytes = not_sampled;  // both remain unset for an ended process
};

inline ResidentSize read_resident(const char* status_path) {
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

inline std::int64_t read_proportional(pid_t process) {
  char path[64];
  format(path, sizeof path, "/proc/%d/smaps_rollup", process);
  return bytes_after(path, "Pss:");
}

static_assert(not_sampled == -1);

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

  void sample_proportional(const ProcessTree& tree) {
    std::int64_t sum_bytes = not_sampled;
    for (const pid_t process : tree.processes()) {
      const std::int64_t size_bytes = read_proportional(process);
      if (size_bytes != not_sampled) sum_bytes = std::max<std::int64_t>(sum_bytes, 0) + size_bytes;
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

}  // namespace ts
