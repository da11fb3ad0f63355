// The stack of a heap's slabs with pending frees. Any thread pushes; the thread that takes it takes
// it whole, by one exchange, so the stack knows no ABA.
#pragma once

#include "engine/page_map.h"

namespace ts::engine {

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

// Counts one more slab of `pages` on the stack whose used blocks are probably all pending; true if
// a reclaim is worth it.
inline bool count_reclaimable(ThreadHeap& heap, std::uint32_t pages) noexcept {
  // A reclaim walks through the whole stack.
  constexpr std::int32_t reclaim_from_pages = 64;
  const auto more = static_cast<std::int32_t>(pages);
  // relaxed: a guess
  return heap.reclaimable_pages.fetch_add(more, std::memory_order_relaxed) + more >=
         reclaim_from_pages;
}

}  // namespace ts::engine
