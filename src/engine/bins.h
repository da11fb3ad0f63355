// The bins of a heap: how they are filled from its slabs and emptied into them. Only the thread
// that owns the heap calls these, and it holds the heap (sweep.h), unless that is new.
#pragma once

#include "engine/layout.h"

namespace ts::engine {

// Fills an empty bin and returns one block more; null without memory. If the bin gets more than it
// has room for, they are all of one slab, and stay so: as long as there are too many, none is put
// before them.
Block* refill(ThreadHeap& heap, unsigned size_class) noexcept;

// Sends all blocks of a bin home. The first time, it opens the bin of a new heap.
void empty_bin(ThreadHeap& heap, unsigned size_class) noexcept;

// Puts everything that the heap holds aside back into slabs, and what is empty into the page heap.
void empty(ThreadHeap& heap) noexcept;

// Empties the bin if nothing else keeps a long slab: the few blocks of a bin must not keep all the
// memory that a thread once had.
void unpin(ThreadHeap& heap, Span& slab) noexcept;

// Says how much room there is in the bins, after a thread was stopped for good between two stores
// (in the child of a fork). Needs no hold.
void recount_bins(ThreadHeap& heap) noexcept;

}  // namespace ts::engine
