// Looking at the memory of a running process tree.
//
// Why it exists: the kernel tells the peak of each single process after its end, but nobody adds up
// a tree; that sum can only be sampled. What it refuses to do: disturb. Looking costs at most 1 %
// of one core: whoever is slow to look at is looked at less often, and the price is reported.
#pragma once

#include <cstdint>

#include "common/system.h"
#include "launch/process_tree.h"
#include "measure/series.h"

namespace ts {

inline constexpr std::int64_t not_sampled = -1;

// Spaces a repeated job so that it is busy for no more than one part in `shares` of the time.
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
      200;  // two jobs, resident and proportional size: together 1 %
  Nanoseconds interval_ns_;
  Nanoseconds due_ns_;
};

struct SamplingOptions {
  Nanoseconds interval_ns = 10 * ns_per_ms;  // 0: never
  std::size_t series_points = 0;             // 0: no series
};

class MemorySampler {
 public:
  MemorySampler(const SamplingOptions& options, Nanoseconds start_ns);

  Nanoseconds due_ns() const { return resident_pace_.due_ns(); }
  void sample(ProcessTree& tree, pid_t root);

  // All in bytes, or not_sampled.
  std::int64_t root_peak_bytes() const {
    return root_peak_bytes_;
  }  // the root's own high-water mark, last seen
  std::int64_t process_peak_bytes() const {
    return process_peak_bytes_;
  }  // the highest high-water mark of any process
  std::int64_t tree_peak_resident_bytes() const { return tree_peak_resident_bytes_; }
  std::int64_t tree_peak_proportional_bytes() const { return tree_peak_proportional_bytes_; }
  const Series& tree_resident() const { return tree_resident_; }
  std::int64_t samples() const { return samples_; }
  std::int64_t proportional_samples() const { return proportional_samples_; }
  Nanoseconds cost_ns() const { return cost_ns_; }

 private:
  void sample_resident(const ProcessTree& tree, pid_t root);
  void sample_proportional(const ProcessTree& tree);

  Nanoseconds start_ns_;
  Pace resident_pace_;
  Pace proportional_pace_;  // walks page tables, so it is much dearer for a big process
  std::int64_t root_peak_bytes_ = not_sampled;
  std::int64_t process_peak_bytes_ = not_sampled;
  std::int64_t tree_peak_resident_bytes_ = not_sampled;
  std::int64_t tree_peak_proportional_bytes_ = not_sampled;
  Series tree_resident_;
  std::int64_t samples_ = 0;
  std::int64_t proportional_samples_ = 0;
  Nanoseconds cost_ns_ = 0;
};

// The high-water mark of this very program: no child's peak can be told below it.
std::int64_t own_peak_bytes();

}  // namespace ts
