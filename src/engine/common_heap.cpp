#include "engine/common_heap.h"

#include "engine/cache_bins.h"
#include "engine/new_heap.h"
#include "engine/refill.h"

namespace ts::engine {
namespace {

constinit ThreadHeap* common_heap TS_GUARDED_BY(common_lock) = nullptr;

}  // namespace

void* allocate_from(ThreadHeap& heap, unsigned size_class) noexcept {
  CacheBin& bin = heap.bins[size_class];
  if (Block* const block = bin.head; block != nullptr) {
    bin.head = block->next;
    ++bin.capacity_left;
    if (take_mark(block)) [[likely]]
      return block;
    put_back_mark(block);
    drop_damaged_bin(heap, size_class, block);
  }
  const HeapHold hold{heap};
  Block* const block = refill(heap, size_class);
  return block != nullptr ? unmarked(block) : nullptr;
}

void* allocate_from_common(unsigned size_class) noexcept {
  const Guard guard{common_lock};
  if (common_heap == nullptr) common_heap = new_heap(0, 0);
  return common_heap != nullptr ? allocate_from(*common_heap, size_class) : nullptr;
}

void flush_common_heap() noexcept {
  const Guard guard{common_lock};
  if (common_heap == nullptr) return;
  const HeapHold hold{*common_heap};
  flush(*common_heap);
}

bool is_common(const ThreadHeap& heap) noexcept { return &heap == common_heap; }

}  // namespace ts::engine
