// The fast paths of malloc and free. Each thread has a heap of slabs and, in front of it, a cache
// bin per size class. malloc pops and free pushes, without atomics, if the block is of the thread's
// own heap.
//
//   malloc  allocate_small -> pop
//                          -> allocate_slow -> refill -> take_used | collect | take_fresh
//                                           -> attach_heap | allocate_from_common
//   free    release -> push
//                   -> release_overflow -> the slab's free list | relist_or_flush_bin
//                   -> release_slow -> release_remote -> a batch, sent when full (remote_frees.h)
//                                   -> release_large (large_blocks.h)
//                                   -> report_stray (misuse.h)
#pragma once

#include "engine/current_heap.h"
#include "engine/misuse.h"
#include "engine/page_map.h"

namespace ts::engine {

// Offsets of the cache bins of the fine classes, by multiples of fine_unit.
inline constexpr auto bin_offsets = [] {
  std::array<std::uint16_t, fine_classes.size()> offsets{};
  for (std::size_t i = 0; i < offsets.size(); ++i)
    offsets[i] = static_cast<std::uint16_t>(fine_classes[i] * sizeof(CacheBin));
  return offsets;
}();

inline CacheBin& bin_at(HeapFront* heap, std::size_t offset) noexcept {
  return *reinterpret_cast<CacheBin*>(reinterpret_cast<std::byte*>(heap->bins) + offset);
}

// A block for an empty bin of the current heap, in any way; null if there is no memory.
[[gnu::noinline]] void* allocate_slow(const CacheBin& bin) noexcept;
// Takes a block for which the bin, of the current heap, has no capacity left.
[[gnu::noinline]] void release_overflow(void* p, std::size_t bin_offset, HeapFront* heap) noexcept;
// Takes a block that is not the current heap's: another heap's, a large one, or none at all. `kind`
// is its entry, exclusive-or with the current heap's number.
[[gnu::noinline]] void release_slow(void* p, PageMapEntry kind) noexcept;

inline void* allocate_small(std::size_t bin_offset) noexcept {
  CacheBin& bin = bin_at(current_heap, bin_offset);
  Block* const block = bin.head;
  if (is_below(address_of(block), lowest_block)) [[unlikely]]
    return allocate_slow(bin);
  bin.head = block->next;
  ++bin.capacity_left;
  return block;
}

// Null has no owner, as every address outside of the engine's memory.
inline void release(void* p) noexcept {
  const PageMapEntry entry = entry_of(p);
  HeapFront* const heap = current_heap;
  // Another heap's number leaves high bits; so do a large block's entry, and 0, where no block
  // begins.
  const PageMapEntry kind = entry ^ heap->self;
  if (kind >= heap_unit) [[unlikely]]
    return release_slow(p, kind);
  // The bin by its offset each time, which is one instruction less than by its address.
  const auto bin = [heap](std::size_t offset) -> CacheBin& {
    return *reinterpret_cast<CacheBin*>(reinterpret_cast<std::byte*>(heap) + offset +
                                        offsetof(HeapFront, bins));
  };
  std::size_t offset = kind;
  Block* const head = bin(offset).head;
  offset = unrelated(offset);
  // A block that is first in its bin is freed for the second time.
  if (head == p) [[unlikely]]
    return report_double_free(p);
  if (falls_below_zero(bin(offset).capacity_left)) [[unlikely]]
    return release_overflow(p, offset, heap);
  offset = unrelated(offset);
  push_front(bin(offset).head, static_cast<Block*>(p), head);
}

}  // namespace ts::engine
