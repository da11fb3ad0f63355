#include "core/core_heap.h"

#include <algorithm>
#include <cstring>

#include "core/cache_bins.h"
#include "core/common_heap.h"
#include "core/deferred_work.h"
#include "core/heap_lifecycle.h"
#include "core/reclaim_all.h"

namespace ts::engine {

namespace {

// The class whose blocks have at least this size and lie at multiples of the alignment; class_count
// if only a large block does. A slab begins at a multiple of any such alignment, so all its blocks
// are aligned if their size is a multiple.
[[gnu::always_inline]] inline unsigned aligned_class(std::size_t bytes,
                                                     std::size_t alignment) noexcept {
  if (alignment > page_bytes || bytes > max_small_bytes) return class_count;
  for (unsigned c = class_for(std::max(bytes, alignment)); c < class_count; ++c) {
    if (size_classes[c].block_bytes % alignment == 0) return c;
  }
  return class_count;
}

}  // namespace

void* CoreHeap::allocate_aligned(std::size_t bytes, std::size_t alignment) noexcept {
  const unsigned size_class = aligned_class(bytes, alignment);
  return size_class < class_count ? allocate_small(bytes, size_class * sizeof(CacheBin))
                                  : allocate_large(bytes, alignment, nullptr);
}

void* CoreHeap::allocate_zeroed(std::size_t bytes) noexcept {
  // A larger block from the page heap is better than one from a bin: it may already be zero.
  if (bytes <= max_shared_bytes) {
    const unsigned size_class = class_for(bytes);
    void* const p = allocate_small(bytes, size_class * sizeof(CacheBin));
    return p != nullptr ? std::memset(p, 0, size_classes[size_class].block_bytes) : nullptr;
  }
  bool zeroed = false;
  void* const p = allocate_large(bytes, min_alignment, &zeroed);
  if (p != nullptr && !zeroed) std::memset(p, 0, usable_large(p));
  return p;
}

std::size_t CoreHeap::bytes_of(const void* p) noexcept {
  const PageMapEntry entry = entry_of(p);
  if (entry == 0) return hooks::foreign_bytes(p);
  return (entry & large_entry) != 0 ? usable_large(p) : size_class_of(entry).block_bytes;
}

void CoreHeap::check_larger_size(const void* p, std::size_t bytes) noexcept {
  if (is_in_use(p) && bytes > bytes_of(p))
    report_misuse(Misuse::wrong_size, FoundBy::sized_free, p, bytes_of(p));
}

std::size_t CoreHeap::good_size(std::size_t bytes, std::size_t alignment) noexcept {
  const unsigned size_class = aligned_class(bytes, alignment);
  if (size_class < class_count) return size_classes[size_class].block_bytes;
  const std::size_t room = colour_room(bytes, alignment);
  return align_up(std::max<std::size_t>(bytes + room, 1), page_bytes) - room;
}

void CoreHeap::flush_thread() noexcept {
  if (!has_heap()) return;
  {
    const HeapHold hold{current_heap()};
    flush(current_heap());
  }
  send_purges_if_any();
}

bool CoreHeap::trim(std::size_t keep_bytes) noexcept {
  const OutOfScope out_of_scope;
  // relaxed: a counter; what the background thread purges meanwhile counts as well
  const std::size_t before = given_back_bytes.load(std::memory_order_relaxed);
  // Twice, because blocks in one heap's bins may belong to a heap that was flushed earlier.
  for (int round = 0; round < 2; ++round) {
    hooks::flush_heaps();
    if (has_heap()) {
      {
        const HeapHold hold{current_heap()};
        flush(current_heap());
      }
      hooks::purge_slabs(current_heap());
    }
    flush_common_heap();
    collect_abandoned(SIZE_MAX);
  }
  while (purge_abandoned()) continue;
  reclaim_all();
  page_heap.trim(keep_bytes);
  return given_back_bytes.load(std::memory_order_relaxed) != before;
}

}  // namespace ts::engine
