// The fast paths of malloc and free. Each thread has a heap of slabs and, in front of it, a cache
// bin per size class. malloc pops and free pushes, without atomic read-modify-write operations, if
// the block belongs to the thread's own heap.
//
// CoreHeap::allocate (core_heap.h) calls allocate_small or allocate_large.
//
//   malloc  allocate_small -> pop -> allocate_after_damage
//                          -> allocate_slow -> allocate_by_refill -> fill_bin (refill.h)
//                                           -> hooks::attend, allocate_sampled (hooks.h)
//                                           -> attach_heap | allocate_from_common
//   free    release, release_sized -> push
//                   -> report_invalid_pointer (misuse.h)
//                   -> release_overflow -> release_to_slab | release_checking_key
//                   -> release_keyless -> release_to_slab | release_checking_key
//                   release_checking_key -> put_aside (spare_lists.h) | bypass_bin | push
//                                        -> release_to_slab -> finish_release
//                   -> release_slow -> push, of a block of whole cache lines
//                                   -> release_remote -> a batch, sent when full (remote_frees.h)
//                                   -> release_large (large_blocks.h)
//                                   -> report_invalid_pointer (misuse.h)
#pragma once

#include "core/current_heap.h"
#include "core/misuse.h"
#include "core/page_map.h"

namespace ts::engine {

// Offsets of the fine classes' cache bins, by bytes: saves malloc a multiplication.
inline constexpr auto bin_offsets = [] {
  std::array<std::uint16_t, max_fine_bytes + 1> offsets{};
  for (std::size_t bytes = 0; bytes < offsets.size(); ++bytes)
    offsets[bytes] = static_cast<std::uint16_t>(class_for(bytes) * sizeof(CacheBin));
  return offsets;
}();

// Whether the entry is of a slab with blocks of this size, at most max_fine_bytes.
inline bool has_class_for(PageMapEntry entry, std::size_t bytes) noexcept {
  return (entry & class_mask) >= bin_offsets[bytes];
}

// A cache bin by its offset. All accesses use its address as their base, without an index: a load
// then gets a value stored shortly before in no time on processors that predict such pairs (memory
// renaming) by comparing their address registers.
inline CacheBin& bin_at(HeapFront* heap, std::size_t offset) noexcept {
  std::byte* const bins = reinterpret_cast<std::byte*>(heap) + offsetof(HeapFront, bins);
  return *reinterpret_cast<CacheBin*>(unrelated(bins + offset));
}

// Allocates `bytes` from an empty bin of the current heap, by any means; null if there is no
// memory.
[[gnu::noinline]] void* allocate_slow(std::size_t bytes, std::size_t bin_offset) noexcept;
// Allocates like allocate_slow(), after memory that is not a free block was popped from a bin of
// the current heap: reports it, and drops the bin.
[[gnu::cold, gnu::noinline]] void* allocate_after_damage(Block* popped,
                                                         std::size_t bin_offset) noexcept;
// Only reports; returns `bytes`, so that the caller need not keep them.
[[gnu::cold, gnu::noinline]] std::size_t drop_damage(std::size_t bytes, Block* popped,
                                                     std::size_t bin_offset) noexcept;
// Frees a block for which the bin, of the current heap, has no capacity left.
[[gnu::noinline]] void release_overflow(void* p, CacheBin& bin, std::size_t page) noexcept;
// Reports a free of a block that is already free, which `bin` has counted but not taken.
[[gnu::cold, gnu::noinline]] void report_double_free(void* p, CacheBin& bin) noexcept;
// Frees a block of the current heap, of the bin's class, in a slab with keyless_bit.
[[gnu::noinline]] void release_keyless(void* p, CacheBin& bin, std::size_t page) noexcept;
// Frees a block that does not belong to the current heap: another heap's, a large one, or none at
// all. `kind` is its entry XORed with the current heap's number.
[[gnu::noinline]] void release_slow(void* p, PageMapEntry kind, std::size_t page,
                                    HeapFront* heap) noexcept;

// Pops a block of the bin; or returns `if_empty(bin)` or `if_damaged(popped, bin)`.
[[gnu::always_inline]] inline void* pop(std::size_t bin_offset, auto if_empty, auto if_damaged) {
  CacheBin& bin = bin_at(this_thread.heap, bin_offset);
  Block* const block = in_result_register<Block>(bin.head);
  if (is_below(address_of(block), page_map.lowest_block)) [[unlikely]]
    return if_empty(bin_offset);
  Block* const next = block->next;
  bin.head = next;
  prefetch_to_write(next);
  ++bin.capacity_left;
  if (!take_key(block)) [[unlikely]]
    return if_damaged(block, bin_offset);
  return block;
}

// Allocates a block of the bin's class, for a request of `bytes`.
inline void* allocate_small(std::size_t bytes, std::size_t bin) noexcept {
  return pop(
      bin, [bytes](std::size_t empty) { return allocate_slow(bytes, empty); },
      allocate_after_damage);
}

// Allocates a block of the bin's class; or returns `otherwise(bytes)` if the bin is empty.
[[gnu::always_inline]] inline void* allocate_small_or(std::size_t bytes, std::size_t bin,
                                                      auto otherwise) {
  return pop(
      bin, [=](std::size_t) { return otherwise(bytes); },
      [=](Block* popped, std::size_t damaged) {
        return otherwise(drop_damage(bytes, popped, damaged));
      });
}

// Frees the block if `fits(its entry)`; else calls `otherwise()`. Null, like every address outside
// of the engine's memory, has entry 0 and thus no owner.
[[gnu::always_inline]] inline void release_if(void* p, auto fits, auto otherwise) noexcept {
  std::size_t page = page_of(p);
  HeapFront* const heap = this_thread.heap;
  if (!is_below(page, page_map.page_count)) [[unlikely]]
    return fits(0) ? release_slow(p, self(), page, heap) : otherwise();  // entry 0 ^ self()
  const MapPage* const pages = page_map.pages;
  // relaxed: as in entry_of()
  const PageMapEntry entry = pages[page].entry.load(std::memory_order_relaxed);
  if (!fits(entry)) [[unlikely]]
    return otherwise();
  // High bits remain if the block belongs to another heap; so they do with keyless_bit, for a large
  // block's entry, and for 0, where no block begins.
  const std::size_t kind = exclusive_or(entry, heap->self);
  if (kind >= keyless_bit) [[unlikely]] {
    if (kind < heap_unit) return release_keyless(p, bin_at(heap, kind - keyless_bit), page);
    return release_slow(p, static_cast<PageMapEntry>(kind), page, heap);
  }
  page = of_one_access(page);
  CacheBin& bin = bin_at(heap, kind);
  // offset_in_slab(), but with the address first: saves one instruction
  const auto offset =
      of_one_access(static_cast<std::uint32_t>(address_of(p))) - pages[page].slab_begin;
  if (!is_multiple(offset, bin.reciprocal)) [[unlikely]]
    return static_cast<void>(report_invalid_pointer(p, FoundBy::free));
  Block* const head = bin.head;
  if (decrement_below_zero(bin.capacity_left)) [[unlikely]]
    return release_overflow(p, bin, page);
  if (has_key(p)) [[unlikely]]
    return report_double_free(p, bin);
  Block* const block = set_key(p);
  push_front(bin.head, block, head);
}

[[gnu::always_inline]] inline void release(void* p) noexcept {
  release_if(
      p, [](PageMapEntry) { return true; }, [] {});
}

// Frees a block of a slab that surely has this size, max_fine_bytes at most; else calls
// `otherwise()`.
[[gnu::always_inline]] inline void release_sized(void* p, std::size_t bytes,
                                                 auto otherwise) noexcept {
  release_if(
      p, [=](PageMapEntry entry) { return has_class_for(entry, bytes); }, otherwise);
}

}  // namespace ts::engine
