// Spans for slabs and large blocks: from the page heap, and from the caches of heaps.
#pragma once

#include "core/types.h"

namespace ts::engine {

// As PageHeap::allocate, from anywhere; null without memory. Before memory is touched for the first
// time, the calling thread collects, and some abandoned heaps are collected; before null, all
// heaps. Without a lock or a hold.
Span* allocate_span(std::size_t pages, std::size_t alignment_pages, unsigned size_class) noexcept;

// Null, and ENOMEM in errno. Without a lock or a hold.
[[gnu::cold]] void* out_of_memory() noexcept;

}  // namespace ts::engine
