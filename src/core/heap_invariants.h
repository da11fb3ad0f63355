// The invariants of one heap (types.h): bins, slabs, the queue of sparse slabs, batches.
#pragma once

#include <cstdint>

#include "base/fault.h"
#include "core/heap_hold.h"
#include "core/page_map.h"

namespace ts::engine {

// Whether two counts agree, within the tolerance for this heap.
bool are_close(const ThreadHeap& heap, std::int64_t a, std::int64_t b) noexcept;

// Checks the pages and the free blocks of a slab of the heap, and whether it is listed.
Fault find_slab_fault(const ThreadHeap& heap, const Span& slab) noexcept;

// Checks the equation of a slab's blocks; `early` frees were collected before they were counted.
Fault find_count_fault(const ThreadHeap& heap, const Span& slab, std::int64_t early) noexcept;

// Checks a heap at rest.
Fault find_heap_fault(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

// Aborts if the heap, which the calling thread is about to leave at rest, violates an invariant.
void check_at_rest(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

}  // namespace ts::engine
