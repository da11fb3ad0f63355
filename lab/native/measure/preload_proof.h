// Whether the dynamic loader has really loaded each library that we asked it to preload.
//
// The loader ignores LD_PRELOAD without failing (for a static program, another architecture, a
// set-user-ID file), and a comparison of one allocator with itself looks perfectly plausible. A
// sample may come before the loader has got that far, so absence is claimed only with evidence that
// the time for loading preloads has passed.
#pragma once

#include <sys/types.h>

#include "launch/options.h"

namespace ts {

enum class Mapped { unknown, no, yes };

class PreloadProof {
 public:
  // `options` must outlive the proof.
  PreloadProof(const Options& options, Nanoseconds start_ns);

  // When to sample next; never once every answer is known.
  Nanoseconds due_ns() const { return due_ns_; }
  void look(pid_t process);

  Mapped verdict(std::size_t index) const { return verdicts_[index]; }
  Nanoseconds cost_ns() const { return cost_ns_; }

 private:
  struct MapsSummary {
    bool is_complete = false;  // the kernel has mapped all that exec maps
    bool has_interpreter = false;
    bool has_libc = false;
  };
  MapsSummary read_maps(pid_t process);
  void note_mapped(const char* path);

  const Options& options_;
  Nanoseconds wait_ns_;
  Nanoseconds due_ns_;
  Nanoseconds cost_ns_ = 0;
  Mapped verdicts_[max_preloads] = {};
  bool is_missing_[max_preloads] = {};  // at the last sample, after the time for loading it
};

}  // namespace ts
