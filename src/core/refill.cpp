#include "core/refill.h"

#include <algorithm>

#include "base/event_counts.h"
#include "core/cache_bins.h"
#include "core/hooks.h"
#include "core/reclaim.h"
#include "core/remote_frees.h"
#include "core/slabs.h"
#include "core/span_supply.h"
#include "core/sparse_slabs.h"

namespace ts::engine {
namespace {

// Looks at all classes, also at those that the thread does not use.
[[gnu::noinline]] void look_after_all(ThreadHeap& heap) noexcept TS_REQUIRES(heap) {
  collect(heap);
  heap.is_to_scavenge = has_to_scavenge(heap);
  hooks::look_at_heap(heap);
}

void look_after_all_in_time(ThreadHeap& heap) noexcept TS_REQUIRES(heap) {
  constexpr std::uint8_t refills = 72;
  if (++heap.refills_since_look < refills) [[likely]]
    return;
  heap.refills_since_look = 0;
  look_after_all(heap);
}

// Reports that the free list of the slab begins with memory that is no free block, and drops the
// list. Its blocks count as used for good.
[[gnu::cold, gnu::noinline]] void drop_damaged_list(Span& slab) noexcept {
  report_damage(slab.size_class, slab.free_list);
  slab.free_list = nullptr;
  add_used(slab, slab.free_blocks);
  set_fast_free_threshold(slab);
}

// Whether the slab's free list begins with a free block.
[[gnu::always_inline]] inline bool has_free_block(const Span& slab) noexcept {
  return slab.free_list != nullptr && is_marked(slab.free_list);
}

// The first slab with a free block, from `slab` on, which has none. Restores purged blocks, or ends
// there.
[[gnu::noinline]] Span* next_with_free_block(ThreadHeap& heap, Span* slab, bool restores) noexcept
    TS_REQUIRES(heap) {
  while (slab != nullptr && !has_free_block(*slab)) {
    if (slab->free_list != nullptr) drop_damaged_list(*slab);
    slab->free_blocks = 0;
    if (slab->purged_blocks != 0) {
      if (!restores) return nullptr;
      hooks::restore_blocks(heap, *slab);
      if (slab->free_list != nullptr) continue;
    }
    Span* const next = slab->next;
    // Only damage, or a longjmp out of a purge or a refill, leaves it listed.
    if (slab->carved == slab->slab_blocks) unlink_partial(heap, *slab);
    slab = next;
  }
  return slab;
}

// The first listed slab with a free block, or null. Of a class, only one slab has fresh blocks
// alone. Where the list comes to purged blocks alone, so are most of the slabs behind it: there it
// ends, unless it `restores`.
[[gnu::always_inline]] inline Span* slab_with_free_block(ThreadHeap& heap, unsigned size_class,
                                                         bool restores) noexcept TS_REQUIRES(heap) {
  Span* const first = heap.partial[size_class];
  if (first == nullptr || has_free_block(*first)) [[likely]]
    return first;
  return next_with_free_block(heap, first, restores);
}

// To be called when a slab gave blocks.
[[gnu::always_inline]] inline void relist_after_use(ThreadHeap& heap, Span& slab) noexcept
    TS_REQUIRES(heap) {
  if (is_queued(slab) && !is_arena(heap)) [[unlikely]]
    unqueue_sparse_slab(heap, slab);
  slab.sparse_mark = sparse_mark_of(slab);
  if (slab.free_list != nullptr || slab.carved != slab.slab_blocks)
    return set_fast_free_threshold(slab);
  if (slab.purged_blocks != 0) return move_behind_others(heap, slab);
  unlink_partial(heap, slab);
}

// A list of blocks, and how many of them were counted.
struct Taken {
  Block* first = nullptr;
  std::uint32_t count = 0;
};

// Counts blocks of the slab's free list as used. (A free that a fork cut off before its count did
// not count its block there: that one is used already.)
[[gnu::always_inline]] inline void count_taken(Span& slab, std::uint32_t blocks) noexcept {
  slab.free_blocks -= blocks;
  add_used(slab, blocks);
}

// How many blocks a refill takes where they are dirty already.
inline std::uint32_t wanted_blocks(const ThreadHeap& heap, unsigned size_class) noexcept {
  const std::uint32_t capacity = heap.capacities[size_class];
  return std::min(std::max(size_classes[size_class].bin_blocks, capacity / 2), capacity);
}

// Takes blocks from slabs' free lists until there are enough of them or no more: such blocks are
// dirty already. The first list is taken whole, since its end need not be found, but not that of a
// long slab (move_fast_free_threshold). Of further ones, the bin takes as many blocks as it has
// capacity for.
Taken take_used(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap) {
  const SizeClass& c = size_classes[size_class];
  const std::uint32_t wanted = wanted_blocks(heap, size_class);
  Taken taken;
  while (taken.count < (wanted + 1) / 2) {
    Span* const slab = slab_with_free_block(heap, size_class, taken.first == nullptr);
    if (slab == nullptr) break;
    std::uint32_t count = slab->free_blocks;
    Block* const first = slab->free_list;
    const bool takes_whole = taken.first == nullptr && c.slab_pages == 1;
    if (takes_whole) {
      slab->free_list = nullptr;
      std::atomic_signal_fence(std::memory_order_release);  // before its blocks count as used
    } else {
      count = count < wanted - taken.count ? count : wanted - taken.count;
      Block* last = first;
      std::uint32_t length = 1;
      for (; length < count && last->next != nullptr; ++length) last = last->next;
      // One more than were counted is a free that a fork cut off.
      if (length < count || (count == 0 && last->next != nullptr)) [[unlikely]] {
        report_damage(size_class, last);
        slab->free_blocks = count = length;
      }
      slab->free_list = last->next;
      last->next = taken.first;
    }
    taken = {first, taken.count + count};
    count_taken(*slab, count);
    relist_after_use(heap, *slab);
  }
  return taken;
}

// Links fresh blocks, at most so many; none without a slab that has some.
Taken take_fresh(ThreadHeap& heap, unsigned size_class, std::uint32_t at_most) noexcept
    TS_REQUIRES(heap) {
  const SizeClass& c = size_classes[size_class];
  Span* const slab = heap.partial[size_class];
  if (slab == nullptr) return {};
  const std::uint32_t left = std::uint32_t{slab->slab_blocks} - slab->carved;
  const std::uint32_t taken = std::min(at_most, left);
  std::byte* at = memory_of(slab) + std::size_t{slab->carved} * c.block_bytes;
  auto* const first = reinterpret_cast<Block*>(at);
  for (std::uint32_t i = 1; i < taken; ++i, at += c.block_bytes)
    marked(at)->next = reinterpret_cast<Block*>(at + c.block_bytes);
  marked(at)->next = nullptr;
  set_carved(*slab, slab->carved + taken);
  add_used(*slab, taken);
  relist_after_use(heap, *slab);
  return {first, taken};
}

// The first class of which a refill carves one block; so does that of each greater one.
inline constexpr unsigned first_carved_singly = [] {
  unsigned c = size_classes.size();
  while (size_classes[c - 1].carve_blocks == 1) --c;
  return c;
}();

// The next fresh block of the class's only slab with blocks to give, where each refill carves one
// block, and this one has nothing else to do. Null otherwise.
[[gnu::noinline]] Block* carve_one(ThreadHeap& heap, unsigned size_class) noexcept
    TS_REQUIRES(heap) {
  const SizeClass& c = size_classes[size_class];
  Span* const slab = heap.partial[size_class];
  if (slab == nullptr || slab->free_list != nullptr || slab->next != nullptr ||
      slab->carved == slab->slab_blocks || slab->purged_blocks != 0 ||
      heap.sparse_slabs[size_class] != 0 || heap.capacities[size_class] == 0 || has_ready(heap))
    return nullptr;
  std::byte* const at = memory_of(slab) + std::size_t{slab->carved} * c.block_bytes;
  set_carved(*slab, slab->carved + 1U);
  slab->free_blocks = 0;
  add_used(*slab, 1);
  relist_after_use(heap, *slab);
  return reinterpret_cast<Block*>(at);
}

// The refill of a bypassed bin, which stays empty (scavenge.h).
[[gnu::noinline]] Block* refill_bypassed(ThreadHeap& heap, unsigned size_class) noexcept
    TS_REQUIRES(heap) {
  --heap.bypassed_refills;
  heap.is_to_scavenge = true;
  Span* slab = slab_with_free_block(heap, size_class, true);
  if (slab == nullptr && collect(heap)) slab = slab_with_free_block(heap, size_class, true);
  if (slab == nullptr) return take_fresh(heap, size_class, 1).first;
  Block* const block = slab->free_list;
  slab->free_list = block->next;
  count_taken(*slab, slab->free_blocks != 0 ? 1 : 0);
  relist_after_use(heap, *slab);
  return block;
}

// Fills the bin with all of them but the first, which it returns.
Block* put_into_bin(ThreadHeap& heap, unsigned size_class, Taken taken) noexcept TS_REQUIRES(heap) {
  CacheBin& bin = heap.bins[size_class];
  bin.head = taken.first->next;
  std::atomic_signal_fence(std::memory_order_release);  // cache_bins.h, counted_blocks
  bin.capacity_left = heap.capacities[size_class] - static_cast<std::int32_t>(taken.count - 1);
  return taken.first;
}

}  // namespace

Block* refill(ThreadHeap& heap, unsigned size_class) noexcept {
  if constexpr (counting) count_event(Event::bin_refills);
  look_after_all_in_time(heap);
  // At the end of its list, a bin must not have counted more blocks.
  if (heap.bins[size_class].head != nullptr || counted_blocks(heap, size_class) > count_tolerance)
      [[unlikely]]
    drop_damaged_bin(heap, size_class, heap.bins[size_class].head);
  if (heap.bypassed_refills != 0) [[unlikely]]
    return refill_bypassed(heap, size_class);
  if (size_class >= first_carved_singly) {
    if (Block* const block = carve_one(heap, size_class); block != nullptr) return block;
  }
  widen_bin(heap, size_class);
  Taken taken = take_used(heap, size_class);
  if (taken.first == nullptr && collect(heap)) taken = take_used(heap, size_class);
  if (taken.first == nullptr) {
    taken = take_fresh(heap, size_class, size_classes[size_class].carve_blocks);
    if (taken.first == nullptr) return nullptr;
    open_bin_wide(heap, size_class);
  }
  return put_into_bin(heap, size_class, taken);
}

Block* refill_from(ThreadHeap& heap, Span& span) noexcept {
  const unsigned size_class = span.size_class;
  add_slab(heap, span);
  // A replaced function of the system may have allocated meanwhile.
  if (heap.bypassed_refills != 0 || heap.bins[size_class].head != nullptr)
    return take_fresh(heap, size_class, 1).first;
  const Taken taken = take_fresh(heap, size_class, size_classes[size_class].carve_blocks);
  open_bin_wide(heap, size_class);
  return put_into_bin(heap, size_class, taken);
}

Block* fill_bin_from_new_slab(ThreadHeap& heap, unsigned size_class) noexcept {
  Span* const span = allocate_span(next_slab_pages(heap, size_class), 1, size_class);
  if (span == nullptr) return nullptr;
  const HeapHold hold{heap};
  return refill_from(heap, *span);
}

}  // namespace ts::engine
