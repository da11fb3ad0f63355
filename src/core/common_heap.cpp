#include "core/common_heap.h"

#include <utility>

#include "core/cache_bins.h"
#include "core/deferred_work.h"
#include "core/heap_lifecycle.h"
#include "core/refill.h"
#include "core/slabs.h"
#include "core/span_supply.h"

namespace ts::engine {
namespace {

constinit ThreadHeap* common_heap TS_GUARDED_BY(common_lock) = nullptr;

}  // namespace

bool SpanForHeap::get() noexcept {
  if (wanted_pages_ != 0) span_ = allocate_span(wanted_pages_, 1, size_class_);
  return span_ != nullptr;
}

// The span is still unused if another thread gave the heap blocks in the meantime.
SpanForHeap::~SpanForHeap() {
  if (span_ != nullptr) page_heap.release(span_);
  send_purges_if_any();
}

void* allocate_from(ThreadHeap& heap, unsigned size_class, SpanForHeap& span) noexcept {
  CacheBin& bin = heap.bins[size_class];
  if (Block* const block = first_block(bin); block != nullptr) {
    bin.head = block->next;
    ++bin.capacity_left;
    if (take_key(block)) [[likely]]
      return block;
    put_back_key(block);
    drop_damaged_bin(heap, size_class, block);
  }
  const HeapHold hold{heap};
  Block* block = refill(heap, size_class);
  if (block == nullptr && span.span_ != nullptr)
    block = refill_from(heap, *std::exchange(span.span_, nullptr));
  if (block == nullptr) span.wanted_pages_ = next_slab_pages(heap, size_class);
  return block != nullptr ? clear_key(block) : nullptr;
}

void* allocate_from_common(unsigned size_class) noexcept {
  return SpanForHeap{size_class}.serve([size_class](SpanForHeap& span) -> void* {
    const Guard guard{common_lock};
    if (common_heap == nullptr) common_heap = new_heap(0, 0);
    return common_heap != nullptr ? allocate_from(*common_heap, size_class, span) : nullptr;
  });
}

void flush_common_heap() noexcept {
  const Guard guard{common_lock};
  if (common_heap == nullptr) return;
  const HeapHold hold{*common_heap};
  flush(*common_heap);
}

bool is_common(const ThreadHeap& heap) noexcept { return &heap == common_heap; }

}  // namespace ts::engine
