// Fills an empty cache bin from the heap's slabs.
//
//   fill_bin -> refill -> refill_from_spare_list -> take_carved -> collect, take_carved
//                      -> take_fresh (blocks that were never used)
//            -> fill_bin_from_new_slab -> allocate_span, without a hold
//                                      -> refill_from -> add_slab, take_fresh
#pragma once

#include "core/heap_hold.h"

namespace ts::engine {

// Fills the bin of the calling thread's heap and returns one more block, which has its key; null if
// there is no memory. Without a lock or a hold.
inline Block* fill_bin(ThreadHeap& heap, unsigned size_class) noexcept;

// The two halves of fill_bin. Null if the heap has no block of the class and needs a span for a
// slab.
Block* refill(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap);
// Takes them from that span. (allocate_span() must be called without a hold.)
Block* refill_from(ThreadHeap& heap, Span& span) noexcept TS_REQUIRES(heap);

[[gnu::noinline]] Block* fill_bin_from_new_slab(ThreadHeap& heap, unsigned size_class) noexcept;

inline Block* fill_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  Block* block = nullptr;
  {
    const HeapHold hold{heap};
    block = refill(heap, size_class);
  }
  return block != nullptr ? block : fill_bin_from_new_slab(heap, size_class);
}

}  // namespace ts::engine
