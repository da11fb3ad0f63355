// Reclaims slabs whose blocks other threads have all freed while their owner does not collect,
// because it sleeps or allocates nothing; and the empty slabs that it keeps. The slabs leave the
// heap and are retired. Nothing else of the heap is changed.
//
// The owner changes slabs and their lists under a hold of its heap, and a reclaim needs the hold
// (heap_hold.h). What the owner changes without a hold does not affect a slab that is reclaimed:
//
// - Blocks in cache bins, on their way to or from them, and in the program's hands count as used
//   and are not pending. If `pending` equals `used`, there are none.
// - The owner's change without the hold (release_to_slab) is complete when it lowers `used`
//   (release, paired with the acquire in is_reclaimable).
// - After the addition that makes blocks pending, a sender touches the slab only to push it, and
//   the reclaimer finds slabs only on the stack. It pushes the other slabs of the stack back: their
//   `pending` stays positive, so no other thread pushes them.
// - The owner frees the last used block of a slab under a hold. Without one, it changes no slab
//   that has no used block.
// - Only one thread reclaims at a time, under reclaim_lock.
//
// tests/models runs this code against senders and the owner.
#pragma once

#include "core/page_map.h"
#include "core/types.h"

namespace ts::engine {

// ---- slabs with pending frees ----

// The stack of a heap's slabs with pending frees. Any thread pushes; the thread that takes it takes
// it whole, by one exchange, so there is no ABA problem.

// Pushes slabs whose counts are positive, linked by next_ready from `first` to the slab of `last`.
inline void push_ready(ThreadHeap& heap, Span* first, RemoteFrees& last) noexcept {
  Span* head = heap.ready.load(std::memory_order_relaxed);
  do {
    last.next_ready = head;
    // release: the links; pairs with the exchange in take_ready()
  } while (!heap.ready.compare_exchange_weak(head, first, std::memory_order_release,
                                             std::memory_order_relaxed));
}

// A hint; relaxed, since take_ready() decides.
inline bool has_ready(const ThreadHeap& heap) noexcept {
  return heap.ready.load(std::memory_order_relaxed) != nullptr;
}

// Takes the whole stack, linked by next_ready.
inline Span* take_ready(ThreadHeap& heap) noexcept {
  // acquire: pairs with push_ready(); sees the links
  return heap.ready.exchange(nullptr, std::memory_order_acquire);
}

// Counts one more slab on the stack, of `pages`, whose used blocks are probably all pending; true
// if there are enough of them, 1 MiB, for a reclaim.
inline bool note_reclaimable(ThreadHeap& heap, std::uint32_t pages) noexcept {
  // A reclaim walks through the whole stack.
  constexpr std::int32_t reclaim_from_pages = 64;
  const auto more = static_cast<std::int32_t>(pages);
  // relaxed: a guess
  return heap.reclaimable_pages.fetch_add(more, std::memory_order_relaxed) + more >=
         reclaim_from_pages;
}

// ---- reclaim ----

// Reclaims from the heap, unless it is held, or another thread reclaims.
void reclaim(ThreadHeap& heap) noexcept;

// Takes the slabs out of the heap that a reclaim may take, linked by `next`. Under reclaim_lock.
Span* take_reclaimable(ThreadHeap& heap, bool takes_empty) noexcept TS_REQUIRES(heap);

// Retires them; false if there are none. Without a lock, since this may return memory to the
// system. (If the process forks meanwhile, its child loses these slabs.)
bool retire_slabs(Span* slab) noexcept;

}  // namespace ts::engine
