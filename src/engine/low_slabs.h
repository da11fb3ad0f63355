// The slabs of a heap that ran low, in a queue, oldest first: little of them is used, and perhaps
// little will be. In rounds (tending.h), their free OS pages go back to the operating system.
#pragma once

#include "engine/heap_hold.h"
#include "engine/page_map.h"

namespace ts::engine {

// Links of the queue are page numbers from 1 on; 0 is none, and a slab with next_low 0 is in no
// queue.
inline constexpr std::uint32_t end_of_queue = ~std::uint32_t{0};

inline bool is_queued(const Span& slab) noexcept { return slab.next_low != 0; }

inline Span& queued_slab(std::uint32_t link) noexcept { return page_map.spans[link - 1]; }

// The link to the slab behind one that is queued; 0 if it is the last.
inline std::uint32_t link_behind(const Span& slab) noexcept {
  const std::uint32_t next = slab.next_low;
  return next != end_of_queue ? next : 0;
}

inline bool is_low(const Span& slab) noexcept {
  return slab.used.load(std::memory_order_relaxed) <= slab.low_mark;
}

// Puts a slab behind the others.
inline void queue_low_slab(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap) {
  const auto link = static_cast<std::uint32_t>(first_page_of(&slab) + 1);
  slab.low_round = heap.round;
  slab.next_low = end_of_queue;
  slab.previous_low = heap.last_low;
  (heap.last_low != 0 ? queued_slab(heap.last_low).next_low : heap.first_low) = link;
  heap.last_low = link;
  heap.low_pages += slab.pages;
}

// Takes a slab out of the queue.
inline void unqueue_low_slab(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap) {
  const std::uint32_t next = link_behind(slab);
  const std::uint32_t previous = slab.previous_low;
  if (previous != 0) {
    queued_slab(previous).next_low = slab.next_low;
  } else {
    heap.first_low = next;
  }
  (next != 0 ? queued_slab(next).previous_low : heap.last_low) = previous;
  slab.next_low = 0;
  heap.low_pages -= slab.pages;
}

}  // namespace ts::engine
