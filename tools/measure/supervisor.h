// From the start of the program to the end of its last process: waiting, sampling, timeouts,
// signals.
//
// Why it exists: one loop decides when each of these happens, so that no wait can hide another and
// no process outlives the run. What it refuses to do: wait without a bound once the root has ended
// or its time is up; a process that does not go is killed.
#pragma once

#include <sys/resource.h>

#include "launch/child.h"
#include "measure/memory_sampler.h"
#include "launch/options.h"
#include "measure/preload_proof.h"
#include "launch/process_tree.h"

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

struct Outcome {
  bool root_ended = false;  // false only for a root that even SIGKILL could not end in time
  int wait_status = 0;      // as waitpid gives it
  Nanoseconds wall_ns = 0;  // from exec to the root's end
  Usage usage;
  bool timed_out = false;
  bool interrupted = false;
  std::int64_t left_behind = 0;  // processes that outlived the root and had to be killed
};

// Blocks the signals that the supervisor waits for; returns the mask from before, which the child
// gets back.
sigset_t block_awaited_signals();

class Supervisor {
 public:
  Supervisor(const Options& options, const StartedChild& child);

  // Returns when no process is left (or none that can be ended).
  void run();

  const Outcome& outcome() const { return outcome_; }
  const MemorySampler& sampler() const { return sampler_; }
  const PreloadProof& preload_proof() const { return preload_proof_; }

 private:
  enum class Phase {
    running,      // deadline: the timeout
    lingering,    // the root has ended, others have not; deadline: end of our patience
    terminating,  // SIGTERM has been sent; deadline: SIGKILL
    killing       // SIGKILL is being sent again and again; deadline: the next round
  };

  bool reap();  // false when there is no child left
  void note_root_end(int wait_status);
  void terminate();
  void kill_all();
  void pass_deadline();
  void look_around();
  void wait_for_event();

  const StartedChild& child_;
  Outcome outcome_;
  ProcessTree tree_;
  MemorySampler sampler_;
  PreloadProof preload_proof_;
  Phase phase_ = Phase::running;
  Nanoseconds deadline_ns_;
  Nanoseconds give_up_ns_;
  bool is_counting_left_behind_ = false;
};

}  // namespace ts
