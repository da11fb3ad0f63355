// A quantity over the time of a run, in a bounded number of points.
//
// Why it exists: nobody knows beforehand how long a run takes, and a report must not grow with it.
// What it refuses to do: average. Each point was measured; when there is no room for another, every
// other one is dropped, and from then on only every second one is taken.
#pragma once

#include <cstddef>
#include <span>

#include "common/system.h"

namespace ts {

class Series {
 public:
  struct Point {
    Nanoseconds time_ns;  // since the start of the run
    std::int64_t bytes;
  };
  static constexpr std::size_t most_points = 10'000;

  // capacity 0: takes nothing. At most most_points.
  explicit Series(std::size_t capacity) : capacity_{capacity} {}

  void add(Point point) {
    if (capacity_ == 0 || offered_++ % stride_ != 0) return;
    if (count_ == capacity_) halve();
    // What has just halved the points is itself every other one, unless their number was odd.
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
  Point points_[most_points] = {};
};

}  // namespace ts
