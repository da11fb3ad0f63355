// The result of a replay, for each of its processes.
//
// Forked children report to the first process, and only that one writes the line of JSON. Results
// are in shared mappings made before anything is forked; each process writes its own and ends, and
// then its parent, having waited for it, may read.
#pragma once

#include <cstdint>

#include "replay/histogram.h"
#include "replay/memory.h"
#include "replay/pages.h"
#include "replay/plan.h"

namespace ts::replay {

inline constexpr std::uint64_t no_checksum = 0;

// The first block that was wrong.
struct Fault {
  std::uint64_t operation;  // in recorded order
  std::uint64_t size;
  std::uint64_t offset;   // of the wrong byte; intact: the address is not aligned
  std::uint64_t address;  // 0: no fault
  std::uint32_t thread;
  plan::Kind kind;
};

struct Sample {
  std::uint64_t event;  // 0: was not taken
  std::int64_t live_bytes;
  Memory memory;
};

// For calls, in clock ticks.
struct Latency {
  Histogram kinds[plan::call_kinds];
  Histogram nulls;
};

struct ImageResult {
  bool has_ended;   // of its own accord, with everything below
  int wait_status;  // of a child that was waited for
  int pid;          // of a child that was not
  plan::Totals totals;
  std::uint64_t null_results;
  std::uint64_t granted;  // recorded as refused, but not refused now
  std::int64_t live_bytes;
  std::int64_t peak_live_bytes;
  std::int64_t wall_ns;
  std::int64_t sampling_ns;
  std::uint64_t checksum;
  std::uint64_t corrupt;
  std::uint64_t misaligned;
  Fault fault;
  Memory at_start;
  Memory at_end;
  Memory freed;
  Memory settled;
  std::int64_t own_bytes;
  std::int64_t peak_rss_bytes;
};

// The samples of one image are at the same epochs in each run: about as many as requested, evenly
// spaced, and one at the peak.
class SamplePlaces {
 public:
  SamplePlaces(std::uint64_t wanted, std::uint64_t epochs, std::uint64_t peak_epoch)
      : wanted_{wanted < epochs ? wanted : epochs}, epochs_{epochs}, peak_epoch_{peak_epoch} {}

  static constexpr std::uint64_t no_place = UINT64_MAX;

  // The place of the sample that is taken when this epoch is done, or no_place.
  std::uint64_t place(std::uint64_t epoch) const {
    if (wanted_ == 0 || (epoch != peak_epoch_ && !is_regular(epoch))) return no_place;
    return regular_before(epoch) + (peak_epoch_ < epoch && !is_regular(peak_epoch_) ? 1 : 0);
  }
  std::uint64_t count() const { return wanted_ == 0 ? 0 : wanted_ + 1; }  // at most

 private:
  // Both factors are below 2^32.
  std::uint64_t regular_before(std::uint64_t epoch) const { return epoch * wanted_ / epochs_; }
  bool is_regular(std::uint64_t epoch) const {
    return regular_before(epoch + 1) > regular_before(epoch);
  }

  std::uint64_t wanted_;
  std::uint64_t epochs_;
  std::uint64_t peak_epoch_;
};

}  // namespace ts::replay
