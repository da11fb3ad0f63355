// A heap's queue of sparse slabs, oldest first. Little of them is used, and may stay unused: their
// free OS pages are purged in rounds (scavenge.h).
#pragma once

#include "core/heap_hold.h"
#include "core/page_map.h"
#include "core/purge_policy.h"
#include "os/os.h"

namespace ts::engine {

// Links of the queue are page numbers, from 1 on; end_of_queue ends it. A slab whose next_sparse is
// 0 is not queued.
inline constexpr std::uint32_t end_of_queue = ~std::uint32_t{0};

inline bool is_queued(const Span& slab) noexcept { return slab.next_sparse != 0; }

inline Span& queued_slab(std::uint32_t link) noexcept { return page_map.spans[link - 1]; }

// The link to the slab after a queued one; 0 if it is the last.
inline std::uint32_t link_after(const Span& slab) noexcept {
  const std::uint32_t next = slab.next_sparse;
  return next != end_of_queue ? next : 0;
}

inline bool is_sparse(const Span& slab) noexcept { return used(slab) <= slab.sparse_limit; }

// In sparse slabs; less is not worth the work.
inline constexpr std::uint32_t min_sparse_queue_pages = (std::uint32_t{1} << 20) / page_bytes;

// Never for an arena, whose queue has all its slabs.
inline bool has_to_scavenge(const ThreadHeap& heap) noexcept TS_REQUIRES(heap) {
  return heap.sparse_pages >= min_sparse_queue_pages && !is_arena(heap) &&
         !purge_delay().is_never();
}

// Appends a slab to the queue.
inline void queue_sparse_slab(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap) {
  const auto link = static_cast<std::uint32_t>(first_page_of(&slab) + 1);
  slab.sparse_round = heap.round;
  slab.next_sparse = end_of_queue;
  slab.previous_sparse = heap.last_sparse;
  (heap.last_sparse != 0 ? queued_slab(heap.last_sparse).next_sparse : heap.first_sparse) = link;
  heap.last_sparse = link;
  heap.sparse_pages += slab.pages;
}

// Takes a slab out of the queue.
inline void unqueue_sparse_slab(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap) {
  const std::uint32_t next = link_after(slab);
  const std::uint32_t previous = slab.previous_sparse;
  if (previous != 0) {
    queued_slab(previous).next_sparse = slab.next_sparse;
  } else {
    heap.first_sparse = next;
  }
  (next != 0 ? queued_slab(next).previous_sparse : heap.last_sparse) = previous;
  slab.next_sparse = 0;
  heap.sparse_pages -= slab.pages;
}

// ---- purged OS pages (Span::purged) ----

// Whether the offset in a slab lies in one of these OS pages of its page.
inline bool begins_in(std::uint8_t os_pages, std::size_t offset) noexcept {
  return (os_pages >> offset % page_bytes / os::page_bytes() & 1) != 0;
}

// Whether the block, a carved one, begins in a purged OS page: then it is free, and on no list.
inline bool is_purged(const Span& slab, std::uint32_t number) noexcept {
  const std::size_t offset = std::size_t{number} * size_classes[slab.size_class].block_bytes;
  const std::uint8_t purged = (&slab)[offset / page_bytes].purged;
  return purged != 0 && begins_in(purged, offset);
}

}  // namespace ts::engine
