// The settings of a replay, and its result for each of its processes.
//
// Forked children report to the first process, and only that one writes the line of JSON. Results
// are in shared mappings made before anything is forked; each process writes its own and ends, and
// then its parent, having waited for it, may read.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/system.h"
#include "replay/memory.h"
#include "replay/plan.h"
#include "replay/schedule.h"

namespace ts::replay {

// What is written into each block.
enum class Touch : std::uint8_t { none, first, page, all };

struct Settings {
  Order order = Order::asap;
  std::uint64_t quantum = 100;  // calls
  std::uint64_t seed = 1;
  Tickets tickets;
  Touch touch = Touch::page;
  bool verify = false;
  bool latency = false;
  std::uint64_t samples = 0;
  Nanoseconds settle_ns = -1;  // -1: do not
};

// Counts of values in buckets 1/32 of an octave wide.
//
// Latency is about the slowest call in a million, so every call is counted, which must be cheap: no
// sorting, no sampling. A bucket is reported as its upper end, at most 1/32 above the value; the
// maximum is exact. One thread writes; readers have waited for its end.
class Histogram {
 public:
  void add(std::uint64_t value) {
    ++counts_[bucket(value)];
    if (value > max_) max_ = value;
  }

  void add(const Histogram& other) {
    for (std::size_t i = 0; i < buckets; ++i) {
      if (other.counts_[i] != 0) counts_[i] += other.counts_[i];  // or its page need not exist
    }
    if (other.max_ > max_) max_ = other.max_;
  }

  std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t each : counts_) sum += each;
    return sum;
  }

  std::uint64_t max() const { return max_; }

  // Calls visit(highest value, count) for each nonempty bucket, in ascending order.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < buckets; ++i) {
      if (counts_[i] != 0) visit(upper_end(i), counts_[i]);
    }
  }

  static constexpr std::size_t bucket(std::uint64_t value) {
    if (value < per_octave) return value;
    const unsigned octave = 63U - static_cast<unsigned>(__builtin_clzll(value));
    if (octave >= octaves) return buckets - 1;
    return (octave - 4) * per_octave + ((value >> (octave - 5)) & (per_octave - 1));
  }

  // The highest value of a bucket.
  static constexpr std::uint64_t upper_end(std::size_t index) {
    if (index < per_octave) return index;
    const std::size_t octave = index / per_octave + 4;
    return ((per_octave + index % per_octave + 1) << (octave - 5)) - 1;
  }

 private:
  static constexpr std::size_t per_octave = 32;
  static constexpr unsigned octaves = 44;  // larger values share the last bucket: hours, in ns
  static constexpr std::size_t buckets = (octaves - 4) * per_octave;

  std::uint64_t counts_[buckets];
  std::uint64_t max_;
};

// The first block that was wrong.
struct Fault {
  std::uint64_t operation;  // in recorded order
  std::uint64_t size;
  std::uint64_t offset;   // of the wrong byte; intact: the address is not aligned
  std::uint64_t address;  // 0: no fault
  std::uint32_t thread;
  plan::Kind kind;
};

// Of one thread, or of a process: the sums of its threads, and the first fault.
struct Counts {
  plan::Totals totals;
  std::uint64_t null_results;
  std::uint64_t granted;   // recorded as refused, but not refused now
  std::uint64_t checksum;  // of all addresses returned, in order
  std::uint64_t corrupt;
  std::uint64_t misaligned;
  Fault fault;
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

struct ImageResult : Counts {
  bool has_ended;   // of its own accord, with everything below
  int wait_status;  // of a child that was waited for
  int pid;          // of a child that was not
  std::int64_t live_bytes;
  std::int64_t peak_live_bytes;
  std::int64_t wall_ns;
  std::int64_t sampling_ns;
  Memory at_start;
  Memory at_end;
  Memory freed;
  Memory settled;
  std::uint64_t own_bytes;
  std::int64_t peak_rss_bytes;  // of the whole process
};

// The samples of one image are at the same epochs in each run: about as many as requested, evenly
// spaced, and one at the peak.
class SamplePlaces {
 public:
  SamplePlaces(std::uint64_t wanted, std::uint64_t epochs, std::uint64_t peak_epoch)
      : wanted_{wanted < epochs ? wanted : epochs}, epochs_{epochs}, peak_epoch_{peak_epoch} {}

  static constexpr std::uint64_t no_place = UINT64_MAX;

  // The place of the sample that is taken when this epoch is done, from 0 to the number that was
  // asked for; or no_place.
  std::uint64_t place(std::uint64_t epoch) const {
    if (wanted_ == 0 || (epoch != peak_epoch_ && !is_regular(epoch))) return no_place;
    return regular_before(epoch) + (peak_epoch_ < epoch && !is_regular(peak_epoch_) ? 1 : 0);
  }

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
