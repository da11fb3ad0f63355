// Reclaims slabs that other threads have freed entirely and their owner does not collect, since it
// sleeps or allocates nothing; and empty slabs that it keeps. The slabs leave the heap and are
// retired. Nothing else of the heap is touched.
//
// The owner changes slabs and their lists under a hold of its heap, and a reclaim needs the hold
// (heap_hold.h). Changes by the owner without a hold do not affect a slab that is reclaimed:
//
// - Blocks in cache bins, on their way to or from them, and in the program's hands count as used
//   and are not pending. Where `pending` equals `used` there are none.
// - The owner's change without the hold (release_to_slab) is over when `used` falls by it
//   (release, paired with the acquire in is_reclaimable).
// - After the addition that makes blocks pending, a sender touches the slab only to push it, and
//   the reclaimer finds slabs on the stack only. The others of the stack go back onto it: their
//   `pending` stays positive, so that no other thread pushes them.
// - The owner frees the last used block of a slab under a hold. Without one, it changes no slab of
//   which no block is used.
// - One thread reclaims at a time, under reclaim_lock.
//
// tests/models runs this code against senders and the owner.
#pragma once

#include "core/page_map.h"
#include "core/types.h"

namespace ts::engine {

// ---- slabs with pending frees ----

// The stack of a heap's slabs with pending frees. Any thread pushes; the thread that takes it takes
// it whole, by one exchange, so the stack knows no ABA.

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

// Takes the stack; next_ready links it.
inline Span* take_ready(ThreadHeap& heap) noexcept {
  // acquire: pairs with push_ready(); sees the links
  return heap.ready.exchange(nullptr, std::memory_order_acquire);
}

// Notes one more slab of `pages` on the stack whose used blocks are probably all pending; true if
// there are enough of them, 1 MiB, for a reclaim.
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

// Reclaims from all heaps but those that are held, and takes their empty slabs; true if there was
// anything.
bool reclaim_all() noexcept;

}  // namespace ts::engine
