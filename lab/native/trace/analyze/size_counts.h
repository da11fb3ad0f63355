// For each size that was asked for, how often: in allocations, in resizes, at the peak, at the end.
//
// Why it exists: an allocator's size classes are judged by exact sizes; a histogram would blur what
// a class rounds. What it refuses to do: grow without bound. After max_large different sizes above
// a MiB, further ones are counted under the bound of their eighth of an octave, and is_exact()
// tells.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "trace/analyze/buckets.h"

namespace ts::trace {

struct SizeCount {
  std::uint64_t allocations = 0;
  std::uint64_t resizes = 0;  // to this size
  std::uint64_t live = 0;
  std::uint64_t at_peak = 0;
  std::uint64_t left_own = 0;  // at the end
  std::uint64_t left_inherited = 0;
};

class SizeCounts {
 public:
  static constexpr std::size_t max_large = 1U << 20;

  SizeCount& of(std::uint64_t size) {
    if (size >= small_end) return of_large(size);
    std::unique_ptr<Page>& page = pages_[size / page_sizes];
    if (page == nullptr) page = std::make_unique<Page>();
    return (*page)[size % page_sizes];
  }

  // The objects that are live now are those of the peak.
  void take_peak() {
    for (const std::unique_ptr<Page>& page : pages_) {
      if (page == nullptr) continue;
      for (SizeCount& count : *page) count.at_peak = count.live;
    }
    for (auto& [size, count] : large_) count.at_peak = count.live;
  }

  bool is_exact() const { return is_exact_; }

  // visit(size, count), by size; sizes that never occurred are left out.
  template <typename Visit>
  void each(Visit visit) const {
    for (std::size_t page = 0; page < pages_.size(); ++page) {
      if (pages_[page] == nullptr) continue;
      for (std::size_t i = 0; i < page_sizes; ++i) {
        const SizeCount& count = (*pages_[page])[i];
        if (occurred(count)) visit(std::uint64_t{page * page_sizes + i}, count);
      }
    }
    for (const auto& [size, count] : large_) {
      if (occurred(count)) visit(size, count);
    }
  }

 private:
  static constexpr std::size_t page_sizes = 1024;
  static constexpr std::uint64_t small_end = 1U << 20;
  using Page = std::array<SizeCount, page_sizes>;

  // A caller that asks for a reference may leave it as it was.
  static bool occurred(const SizeCount& count) {
    return (count.allocations | count.resizes | count.live | count.at_peak | count.left_own |
            count.left_inherited) != 0;
  }

  // No exact size is added once there are too many, so that a size is found again where it was
  // counted.
  SizeCount& of_large(std::uint64_t size) {
    if (const auto found = large_.find(size); found != large_.end()) return found->second;
    if (large_.size() < max_large) return large_[size];
    is_exact_ = false;
    return large_[Eighths::upper(Eighths::index(size))];
  }

  std::array<std::unique_ptr<Page>, small_end / page_sizes> pages_{};
  std::map<std::uint64_t, SizeCount> large_;
  bool is_exact_ = true;
};

}  // namespace ts::trace
