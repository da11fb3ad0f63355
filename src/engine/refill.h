// Fills an empty cache bin from the heap's slabs.
//
//   refill -> take_used (slabs' free lists) -> collect, take_used -> take_fresh (carves a page)
//                                                                    -> allocate_span, add_slab
#pragma once

#include "engine/heap_hold.h"

namespace ts::engine {

// Fills the bin and returns one block more, which has its mark; null without memory. The bin may
// exceed its capacity with blocks of one slab (types.h, CacheBin).
Block* refill(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap);

}  // namespace ts::engine
