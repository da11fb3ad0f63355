// Which pages of a process are resident; see process.h.
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "inspect/process.h"

namespace ts {
namespace {

constexpr std::uint64_t is_present = std::uint64_t{1} << 63;  // of an entry of pagemap

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// PAGEMAP_SCAN is available from Linux 6.7 on; older headers do not define it.
struct PageRegion {
  std::uint64_t begin, end, categories;
};
struct PageScan {
  std::uint64_t size, flags, begin, end, walk_end, regions, region_count, max_pages;
  std::uint64_t inverted, all_of, any_of, returned;
};
constexpr unsigned long page_scan = _IOWR('f', 16, PageScan);
constexpr std::uint64_t is_present_page = 1 << 3;
constexpr std::uint64_t is_zero_page = 1 << 5;

}  // namespace

// With PAGEMAP_SCAN; false if the kernel lacks it.
bool Process::scan_pages(const Range& range) {
  PageRegion found[max_regions];
  PageScan scan{};
  scan.size = sizeof scan;
  scan.begin = range.begin;
  scan.end = range.end;
  scan.regions = reinterpret_cast<std::uint64_t>(found);
  scan.region_count = max_regions;
  scan.all_of = is_present_page | is_zero_page;
  scan.inverted = is_zero_page;  // that is, which are not
  scan.returned = is_present_page;
  const int count = ioctl(pagemap_, page_scan, &scan);
  if (count < 0) return false;
  for (int i = 0; i < count; ++i) regions_[i] = {found[i].begin, found[i].end};
  region_count_ = static_cast<std::size_t>(count);
  window_.end = scan.walk_end > range.begin ? scan.walk_end : range.end;
  return true;
}

// With entries of /proc/PID/pagemap, several at a time, on kernels before 6.7.
void Process::read_pages(const Range& range) {
  constexpr std::size_t max_entries = 8192;
  static std::uint64_t entries[max_entries];
  const std::size_t first = range.begin / page_bytes();
  const std::size_t count = std::min(max_entries, range.bytes() / page_bytes());
  const ssize_t bytes = pread(pagemap_, entries, count * sizeof entries[0],
                              static_cast<off_t>(first * sizeof entries[0]));
  if (bytes <= 0) return;
  std::size_t i = 0;
  for (; i < static_cast<std::size_t>(bytes) / sizeof entries[0]; ++i) {
    if ((entries[i] & is_present) == 0) continue;
    const std::uintptr_t at = (first + i) * page_bytes();
    const bool continues = region_count_ != 0 && regions_[region_count_ - 1].end == at;
    if (!continues && region_count_ == max_regions) break;
    if (!continues) regions_[region_count_++] = {at, at};
    regions_[region_count_ - 1].end += page_bytes();
  }
  window_.end = (first + i) * page_bytes();
}

// Checks pages from the start of the range on; it consists of whole pages.
void Process::look_at_pages(const Range& range) {
  window_ = range;
  region_count_ = region_ = 0;
  if (cache_ == nullptr) return scan_or_read_pages(range);
  if (cache_->is_cached(range.begin)) return take_cached(range.begin);
  window_.end = cache_->next_cached(range.begin, range.end);
  scan_or_read_pages(window_);
  cache_->note(window_, regions_, region_count_);
}

void Process::take_cached(std::uintptr_t address) {
  constexpr std::size_t max_per_block = ResidencyCache::block_bytes / 4096 / 2;
  window_.begin = window_.end = address / ResidencyCache::block_bytes * ResidencyCache::block_bytes;
  while (region_count_ + max_per_block <= max_regions && cache_->is_cached(window_.end)) {
    cache_->for_each_range(window_.end, [this](const Range& range) {
      const bool continues = region_count_ != 0 && regions_[region_count_ - 1].end == range.begin;
      if (!continues) regions_[region_count_++].begin = range.begin;
      regions_[region_count_ - 1].end = range.end;
    });
    window_.end += ResidencyCache::block_bytes;
  }
}

void Process::scan_or_read_pages(Range range) {
  if (!scan_pages(range)) read_pages(range);
}

// An address some mappings further on, within a mapping or at its end: the kernel need not scan
// past the last one.
std::uintptr_t Process::end_of_window(std::uintptr_t begin) {
  const std::uintptr_t limit = begin + std::min(max_bytes, ~begin);
  const std::size_t i = first_after(limit);
  if (i < mappings_.count() && mappings_[i].range.begin < limit) return limit;
  return mappings_[i - 1].range.end;
}

// For whole pages. Unmapped addresses are left out, except those between mappings close to each
// other, which are scanned together.
std::size_t Process::resident_within(const Range& range) {
  std::size_t bytes = 0;
  for (std::uintptr_t at = range.begin; at < range.end;) {
    if (at < window_.begin || at >= window_.end) {
      const std::size_t i = first_after(at);
      if (i == mappings_.count()) break;
      at = std::max(at, mappings_[i].range.begin);
      if (at >= range.end) break;
      look_at_pages({at, end_of_window(at)});
      if (at >= window_.end) break;
    }
    const std::uintptr_t end = std::min(range.end, window_.end);
    if (region_ != 0 && at < regions_[region_ - 1].end) region_ = 0;
    while (region_ < region_count_ && regions_[region_].end <= at) ++region_;
    for (std::size_t i = region_; i < region_count_ && regions_[i].begin < end; ++i)
      bytes += std::min(end, regions_[i].end) - std::max(at, regions_[i].begin);
    at = end;
  }
  return bytes;
}

std::uintptr_t Process::end_of_page(std::uintptr_t address) {
  return (address + page_bytes() - 1) & -page_bytes();
}

std::size_t Process::resident_bytes_of(const Mapping& mapping) {
  return has_scan_ ? resident_within(mapping.range) : mapping.resident_bytes;
}

std::size_t Process::resident_bytes(const Range& range) {
  // Counts whole pages: two ranges that share one both count it.
  const std::uintptr_t begin = range.begin & -page_bytes();
  const std::uintptr_t end = end_of_page(range.end);
  if (end <= begin) return 0;
  if (is_resident({begin, end})) return end - begin;
  return resident_within({begin, end});
}

}  // namespace ts
