// Spare lists: a burst of frees puts the list of a full cache bin aside, and later mallocs make it
// the bin's list again. Neither moves a block, and only the first few are ever read.
//
// The lists of all heaps together have at most 25 MiB. A burst that needs more returns its blocks
// to their slabs (bypass_bin). So does a list that is not used again: when it is old, when
// memory would have to grow, or when the bins of its class are flushed. Its blocks count as used
// until then.
#pragma once

#include "core/cache_bins.h"

namespace ts::engine {

// Puts the list of the class's full bin aside, and leaves the bin empty. False, with nothing
// changed, if the class has no spare lists, or there are too many.
[[gnu::noinline]] bool put_aside(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap);

// Refills the class's empty bin with the list that was put aside last, and returns its first block;
// null if there is no list.
[[gnu::noinline]] Block* refill_from_spare_list(ThreadHeap& heap, unsigned size_class) noexcept
    TS_REQUIRES(heap);

// Returns the blocks of this many lists, about the oldest, to their slabs; false if there are none.
[[gnu::noinline]] bool flush_first_spare_lists(ThreadHeap& heap, std::size_t lists) noexcept
    TS_REQUIRES(heap);

// Returns the blocks of some lists because memory would have to grow by `pages`: a list for each
// page, or a part of all, so that lists add little to the peak.
bool flush_spare_lists_to_grow(ThreadHeap& heap, std::size_t pages) noexcept TS_REQUIRES(heap);

// Makes all lists older; flushes those that are too old.
[[gnu::noinline]] void flush_old_spare_lists(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

// A list that a reclaimer took out of a heap; or none.
struct SpareList {
  Block* first = nullptr;
  unsigned size_class = 0;
};

// Takes the next list that is too old, or any, out of another thread's heap, and ages those before
// it. `left` starts at max_spare_lists; pass the same variable until there are no more lists.
SpareList take_old_spare_list(ThreadHeap& heap, bool takes_all, std::uint32_t& left) noexcept
    TS_REQUIRES(heap);

// Sends the blocks of such a list to their slabs, as remote frees. Without a hold.
void send(SpareList list) noexcept;

// Calls `visit(first block, class)` for each list.
void for_each_spare_list(const ThreadHeap& heap, auto visit) {
  for (std::uint32_t i = 0; i < spare_list_count(heap); ++i)
    visit(heap.spare_lists.first[i], heap.spare_lists.size_class[i]);
}

}  // namespace ts::engine
