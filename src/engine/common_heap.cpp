#include "engine/common_heap.h"

#include "engine/cache_bins.h"
#include "engine/new_heap.h"
#include "engine/refill.h"

namespace ts::engine {
namespace {

constinit ThreadHeap* common_heap TS_GUARDED_BY(common_lock) = nullptr;

}  // namespace

void* allocate_from_common(unsigned size_class) noexcept {
  const Guard guard{common_lock};
  if (common_heap == nullptr) common_heap = new_heap();
  if (common_heap == nullptr) return nullptr;
  CacheBin& bin = common_heap->bins[size_class];
  if (Block* const block = bin.head; block != nullptr) {
    bin.head = block->next;
    ++bin.capacity_left;
    if (take_mark(block)) [[likely]]
      return block;
    put_back_mark(block);
    drop_damaged_bin(*common_heap, size_class, block);
  }
  const HeapHold hold{*common_heap};
  Block* const block = refill(*common_heap, size_class);
  return block != nullptr ? unmarked(block) : nullptr;
}

void flush_common_heap() noexcept {
  const Guard guard{common_lock};
  if (common_heap == nullptr) return;
  const HeapHold hold{*common_heap};
  flush(*common_heap);
}

bool is_common(const ThreadHeap& heap) noexcept { return &heap == common_heap; }

}  // namespace ts::engine
