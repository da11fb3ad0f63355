// Spans for slabs and large blocks. Tries, in this order:
//
//   1. dirty memory of the page heap
//   2. the same, after the calling thread sent its batches and collected
//   3. the same, after collecting from some abandoned heaps
//   4. any memory: dirty, clean, or from beyond the end
//   5. the same, after collecting from all abandoned heaps, reclaiming slabs of all heaps, and
//      sending the chosen purges
//   6. the same, after purging and so merging all free memory
//   7. the same, whenever a purge by another thread ends
#pragma once

#include "core/types.h"

namespace ts::engine {

// Like PageHeap::allocate; null if there is no memory. Without a lock or a hold.
Span* allocate_span(std::size_t pages, std::size_t alignment_pages, unsigned size_class) noexcept;

// Returns null, with ENOMEM in errno. Without a lock or a hold.
[[gnu::cold]] void* out_of_memory() noexcept;

}  // namespace ts::engine
