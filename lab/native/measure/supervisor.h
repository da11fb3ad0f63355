// From the start of the program to the end of its last process: waiting, sampling, timeouts,
// signals.
//
// Why it exists: one loop decides when each of these happens, so that no wait can hide another and
// no process outlives the run. What it refuses to do: decide how a tree is ended (TreeEnd does).
#pragma once

#include <sys/resource.h>

#include "launch/child.h"
#include "launch/options.h"
#include "launch/tree_end.h"
#include "measure/memory_sampler.h"
#include "measure/preload_proof.h"

namespace ts {

// Sums over the root, all that it waited for, and the orphans that came to us; the peak is that of
// the largest single process.
struct Usage {
  Nanoseconds user_ns = 0;
  Nanoseconds system_ns = 0;
  std::int64_t peak_rss_bytes = 0;
  std::int64_t minor_faults = 0;
  std::int64_t major_faults = 0;
  std::int64_t voluntary_switches = 0;
  std::int64_t involuntary_switches = 0;

  void add(const rusage& usage);
};

class Supervisor {
 public:
  Supervisor(const Options& options, const SamplingOptions& sampling, const StartedChild& child);

  // Returns when no process is left (or none that can be ended).
  void run();

  const TreeEnd& end() const { return end_; }
  const Usage& usage() const { return usage_; }
  Nanoseconds wall_ns() const { return wall_ns_; }  // from exec to the root's end
  const MemorySampler& sampler() const { return sampler_; }
  const PreloadProof& preload_proof() const { return preload_proof_; }

 private:
  bool reap();  // false when there is no child left
  void look_around();
  void wait_for_event();

  const StartedChild& child_;
  TreeEnd end_;
  Usage usage_;
  Nanoseconds wall_ns_ = 0;
  MemorySampler sampler_;
  PreloadProof preload_proof_;
};

}  // namespace ts
