// Spans for slabs and large blocks. In this order, until one serves:
//
//   1. dirty memory of the page heap
//   2. the same, once the calling thread sent its batches and collected
//   3. the same, once some abandoned heaps were collected
//   4. any memory: dirty, clean, or from beyond the end
//   5. the same, once all abandoned heaps were collected, slabs of all heaps reclaimed, and chosen
//      purges sent
//   6. the same, once all free memory was purged, and so merged
//   7. the same, whenever a purge by another thread ends
#pragma once

#include "core/types.h"

namespace ts::engine {

// As PageHeap::allocate; null without memory. Without a lock or a hold.
Span* allocate_span(std::size_t pages, std::size_t alignment_pages, unsigned size_class) noexcept;

// Null, and ENOMEM in errno. Without a lock or a hold.
[[gnu::cold]] void* out_of_memory() noexcept;

}  // namespace ts::engine
