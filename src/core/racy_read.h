// Reads of memory that its owner may be changing with plain stores.
#pragma once

#include <algorithm>
#include <bit>

#include "core/page_map.h"
#include "os/os.h"

namespace ts::engine {

// An aligned word is read as a whole.
template <class T>
[[gnu::noinline]] __attribute__((no_sanitize("thread"))) T racy_read(const T& memory) noexcept {
  return __atomic_load_n(&memory, __ATOMIC_RELAXED);
}

// The bytes of a slab in purged OS pages.
inline std::size_t purged_bytes_of(const Span& slab) noexcept {
  std::size_t pages = 0;
  // Another process's memory may contain any length.
  const std::size_t count = std::min<std::size_t>(slab.pages, max_slab_pages);
  for (std::size_t i = 0; i < count; ++i)
    pages += static_cast<std::size_t>(std::popcount(racy_read((&slab)[i].purged)));
  return pages * os::page_bytes();
}

// The bytes of the blocks in a heap's bins. Another process's bins may contain any number.
inline std::size_t bytes_in_bins(const CacheBin* bins, const std::uint16_t* capacities) noexcept {
  std::size_t bytes = 0;
  for (unsigned c = 1; c < class_count; ++c) {
    const std::int64_t blocks =
        std::int64_t{racy_read(capacities[c])} - racy_read(bins[c].capacity_left);
    if (blocks > 0 && blocks <= std::int64_t{max_in_bin})
      bytes += static_cast<std::size_t>(blocks) * size_classes[c].block_bytes;
  }
  return bytes;
}

// The bytes of the blocks in a heap's spare lists. (Another process's flag may be any byte, and so
// is not read here.)
inline std::size_t bytes_in_spare_lists(const ThreadHeap& heap, bool has_wide_bins) noexcept {
  std::size_t bytes = 0;
  for (unsigned c = 1; c < class_count; ++c) {
    const SizeClass& size_class = size_classes[c];
    bytes += std::size_t{racy_read(heap.spare_lists_of[c])} * size_class.block_bytes *
             (has_wide_bins ? size_class.wide_bin_blocks : size_class.bin_blocks);
  }
  return bytes;
}

}  // namespace ts::engine
