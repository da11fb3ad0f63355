// The life of a heap. A thread gets one with its first malloc, an abandoned one or a new one; when
// the thread ends, its heap is abandoned as a whole.
//
//   attach_heap -> adopt_abandoned | new_heap
//   thread ends -> abandon; collect_abandoned, purge_abandoned meanwhile -> give_back
#pragma once

#include "base/fault.h"
#include "core/types.h"
#include "os/mutex.h"

namespace ts::engine {

// ---- new heaps ----

// Creates a heap for a thread or, with arena_bit, for an arena. Null if there is no memory, or no
// room for `spare` more heaps after it. Only the common heap takes the last room (`spare` 0).
// Reuses a heap that was given back, if there is one.
ThreadHeap* new_heap(PageMapEntry kind = 0, std::uint32_t spare = 1) noexcept;

// ---- threads that begin and end ----

// Gives the calling thread an abandoned heap or a new one. Null if there is no memory, or if the
// system would not report the thread's end, so that nothing would abandon the heap.
ThreadHeap* attach_heap() noexcept;

// ---- abandoned heaps ----

// A thread that ends leaves its whole heap to the next thread that starts. Until then others
// collect from it: a thread that needs fresh memory (from some heaps); one that is about to fail,
// or trims (from all of them); and the background thread, once enough is pending
// (hooks::frees_stay_uncollected). The heap keeps the blocks in its bins for the adopting thread,
// unless all such heaps would then have more than 16 MiB of slabs.

// Guards the list of abandoned heaps and its sums. Threads take it as they begin and end.
inline constinit Mutex abandoned_lock;

// One thread at a time works on abandoned heaps. It takes each one out of the list meanwhile, so
// that no thread adopts it, and other threads need not wait.
inline constinit Mutex collection_lock;

// Held for every change by a slice of the background thread's work, but not while memory is purged.
// A fork takes it, so the child loses no memory on its way to the page heap.
inline constinit Mutex background_lock;

// Whether there is an abandoned heap: a hint, read without the lock. Relaxed: a thread that reads
// it late misses one opportunity.
inline constinit Atomic<bool> any_abandoned{false};

// How many pages of slabs the heap has at most: each counts as a long one of its class.
std::uint32_t pages_of_slabs(const ThreadHeap& heap) noexcept;

// Whether a heap with this many pages of slabs may keep the blocks in its bins. (Several threads
// that end at the same time may all get true; they then keep more.)
bool may_keep_bins(std::uint32_t pages) noexcept;

// Abandons a heap. Its bins are empty unless `keeps_bins`; `pages` comes from pages_of_slabs().
void abandon(ThreadHeap& heap, bool keeps_bins, std::uint32_t pages) noexcept
    TS_REQUIRES(abandoned_lock);

// Takes over an abandoned heap for the calling thread; null if there is none.
ThreadHeap* adopt_abandoned() noexcept;

// Collects from up to `at_most` abandoned heaps, round robin, flushes their bins, and retires their
// empty slabs. False if there is no such heap, or another thread is doing this. SIZE_MAX means all:
// then it waits for that thread, and also gives back heaps without slabs (the whole OS pages of
// their structures).
bool collect_from_queue(std::size_t at_most) noexcept;
inline bool collect_abandoned(std::size_t at_most) noexcept {
  return any_abandoned.load(std::memory_order_relaxed) && collect_from_queue(at_most);
}

// Purges some sparse slabs of abandoned heaps (scavenge.h); false if none is left. Call without a
// lock or a hold; takes `lock`, if given, around each change.
bool purge_abandoned(Mutex* lock = nullptr) noexcept;

// Checks the list and its sums (invariants.h); call it at rest.
Fault find_abandoned_fault() noexcept;

}  // namespace ts::engine
