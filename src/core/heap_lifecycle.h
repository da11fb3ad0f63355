// From the birth of a heap to its end: which thread has which. A thread gets a heap with its first
// malloc, an abandoned one or a new one; when it ends, its heap is abandoned, whole.
//
//   attach_heap -> adopt_abandoned | new_heap
//   thread ends -> abandon; collect_abandoned, purge_abandoned meanwhile -> give_back
#pragma once

#include "base/fault.h"
#include "core/types.h"
#include "os/mutex.h"

namespace ts::engine {

// ---- new heaps ----

// One more heap, of a thread or, with arena_bit, an arena; null without memory, also where there is
// not room for `spare` further ones. The common heap takes the last room, and so leaves none. A
// heap that was given back serves first.
ThreadHeap* new_heap(PageMapEntry kind = 0, std::uint32_t spare = 1) noexcept;

// ---- threads that begin and end ----

// Gives the calling thread an abandoned heap or a new one. Null without memory, or where the system
// would not report the thread's end, so that no thread would abandon the heap.
ThreadHeap* attach_heap() noexcept;

// ---- abandoned heaps ----

// A thread that ends leaves its heap, whole, to the next thread that starts. Until then others
// collect from it: a thread that needs fresh memory (some heaps), is about to fail, or trims (all
// of them), and the background thread, once enough is pending (PageHeap::note_uncollected). The
// heap keeps the blocks of its bins for the adopting thread, unless all such heaps then had more
// than 16 MiB of slabs.

// The list of abandoned heaps, and what is noted of them. Threads take it as they begin and end.
inline constinit Mutex abandoned_lock;

// One thread at a time works at abandoned heaps. It takes each out of the list for as long, so
// that no thread adopts that one; other threads need not wait.
inline constinit Mutex collection_lock;

// What a slice of the background thread's work changes, it changes under this lock; memory goes
// back without it. So a fork, which takes it, loses no memory that is on its way to the page heap.
inline constinit Mutex background_lock;

// Whether there is an abandoned heap: a hint, read without the lock. Relaxed: a thread that reads
// it late misses one occasion.
inline constinit Atomic<bool> any_abandoned{false};

// Pages of the heap's slabs, at most.
std::uint32_t pages_of_slabs(const ThreadHeap& heap) noexcept;

// Whether a heap with so many pages of slabs may keep the blocks of its bins. (True for each of
// several threads that end at a time; then they keep more.)
bool may_keep_bins(std::uint32_t pages) noexcept;

// Abandons a heap. Its bins are empty unless it `keeps_bins`; `pages` is from pages_of_slabs().
void abandon(ThreadHeap& heap, bool keeps_bins, std::uint32_t pages) noexcept
    TS_REQUIRES(abandoned_lock);

// An abandoned heap for the calling thread; null if there is none.
ThreadHeap* adopt_abandoned() noexcept;

// Collects from some abandoned heaps, in turn, flushes their bins, and retires their empty slabs.
// False if there is no such heap, or another thread does this already. If all are asked for
// (SIZE_MAX), waits for that thread, and gives heaps without slabs back: the whole OS pages of
// their structures.
bool collect_from_queue(std::size_t at_most) noexcept;
inline bool collect_abandoned(std::size_t at_most) noexcept {
  return any_abandoned.load(std::memory_order_relaxed) && collect_from_queue(at_most);
}

// Purges some sparse slabs of abandoned heaps (scavenge.h); false if none is left. Without a lock
// or a hold; takes `lock`, if there is one, around each change.
bool purge_abandoned(Mutex* lock = nullptr) noexcept;

// Checks the list and its sums (invariants.h); to be called at rest.
Fault find_abandoned_fault() noexcept;

}  // namespace ts::engine
