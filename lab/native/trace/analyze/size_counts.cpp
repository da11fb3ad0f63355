// Pages of small sizes, and a tree of large ones; see size_counts.h.
#include "trace/analyze/size_counts.h"

#include "trace/analyze/buckets.h"

namespace ts::trace {

SizeCount& SizeCounts::of(std::uint64_t size) {
  if (size >= small_end) return of_large(size);
  std::unique_ptr<Page>& page = pages_[size / page_sizes];
  if (page == nullptr) page = std::make_unique<Page>();
  return (*page)[size % page_sizes];
}

// No exact size is added once there are too many, so that a size is found again where it was
// counted.
SizeCount& SizeCounts::of_large(std::uint64_t size) {
  if (const auto found = large_.find(size); found != large_.end()) return found->second;
  if (large_.size() < max_large) return large_[size];
  is_exact_ = false;
  return large_[Eighths::upper(Eighths::index(size))];
}

void SizeCounts::take_peak() {
  for (const std::unique_ptr<Page>& page : pages_) {
    if (page == nullptr) continue;
    for (SizeCount& count : *page) count.at_peak = count.live;
  }
  for (auto& [size, count] : large_) count.at_peak = count.live;
}

}  // namespace ts::trace
