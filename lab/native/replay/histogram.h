// Counts of values in buckets 1/32 of an octave wide.
//
// Latency is about the slowest call in a million, so every call is counted, which must be cheap: no
// sorting, no sampling. A bucket is reported as its upper end, at most 1/32 above the value; the
// maximum is exact. One thread writes; readers have waited for its end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts::replay {

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

}  // namespace ts::replay
