// Spans for slabs and large blocks. Tries, in this order:
//
//   1. dirty memory of the page heap
//   2. dirty memory, after the thread sent its batches, flushed some spare lists, and collected
//   3. dirty memory, after it collected from some abandoned heaps
//   4. any memory: dirty, clean, or from beyond the end
//   5. any memory, after it collected from all abandoned heaps, reclaimed slabs of all heaps, and
//      sent the chosen purges
//   6. any memory, after all free memory was purged and so merged
//   7. any memory, whenever a purge by another thread ends
//   8. any memory, if purges made room within the hard limit
#pragma once

#include "core/types.h"

namespace ts::engine {

// Like PageHeap::allocate; null if there is no memory. Without a lock or a hold.
Span* allocate_span(std::size_t pages, std::size_t alignment_pages, unsigned size_class) noexcept;

// Returns null, with ENOMEM in errno. Without a lock or a hold.
[[gnu::cold]] void* out_of_memory() noexcept;

}  // namespace ts::engine
