#include "core/refill.h"

#include <algorithm>
#include <bit>

#include "base/event_counts.h"
#include "core/cache_bins.h"
#include "core/hooks.h"
#include "core/reclaim.h"
#include "core/remote_frees.h"
#include "core/slabs.h"
#include "core/span_supply.h"
#include "core/spare_lists.h"
#include "core/sparse_slabs.h"

namespace ts::engine {
namespace {

// The work for all classes, including those that the thread does not use.
[[gnu::noinline]] void look_at_all_classes(ThreadHeap& heap) noexcept TS_REQUIRES(heap) {
  collect(heap);
  flush_old_spare_lists(heap);
  heap.is_to_scavenge = has_to_scavenge(heap);
  hooks::look_at_heap(heap);
}

// To be called at each refill; does that work at every 72nd.
void count_refill(ThreadHeap& heap) noexcept TS_REQUIRES(heap) {
  if (++heap.refills_since_look < refills_per_look) [[likely]]
    return;
  heap.refills_since_look = 0;
  look_at_all_classes(heap);
}

// A linked list of `count` blocks.
struct Taken {
  Block* first = nullptr;
  Block* last = nullptr;
  std::uint32_t count = 0;
};

// Those of the blocks that do not begin in purged OS pages.
[[gnu::noinline]] std::uint64_t without_purged(const Span& slab, std::uint32_t first,
                                               std::uint64_t bits) noexcept {
  for (std::uint64_t left = bits; left != 0; left &= left - 1) {
    const auto number = static_cast<unsigned>(std::countr_zero(left));
    if (is_purged(slab, first + number)) bits &= ~(std::uint64_t{1} << number);
  }
  return bits;
}

// Takes up to `at_most` free blocks of the slab, the first ones below `end`, and adds them to the
// list in address order. They count as used.
[[gnu::always_inline]] inline void take_blocks(Span& slab, std::uint32_t end, std::uint32_t at_most,
                                               Taken& taken) noexcept {
  const std::size_t bytes = size_classes[slab.size_class].block_bytes;
  std::byte* const begin = memory_of(&slab);
  Block before;
  Block* last = taken.last != nullptr ? taken.last : &before;
  std::uint32_t left = at_most;
  for (std::uint32_t number = 0; number < end && left != 0; number += 64) {
    Atomic<std::uint64_t>& word = free_word_of(slab, number / 64);
    const std::uint64_t all = word.load(std::memory_order_relaxed);
    std::uint64_t bits = all & lowest_bits(end - number);
    if (slab.purged_blocks != 0) [[unlikely]]
      bits = without_purged(slab, number, bits);
    const std::uint64_t others = all & ~bits;
    if (bits == 0) continue;
    std::byte* const of_word = begin + number * bytes;
    for (; bits != 0 && left != 0; bits &= bits - 1, --left) {
      Block* const block = set_key(of_word + static_cast<unsigned>(std::countr_zero(bits)) * bytes);
      last->next = block;
      last = block;
    }
    word.store(others | bits, std::memory_order_relaxed);
  }
  if (left == at_most) return;
  last->next = nullptr;
  if (taken.first == nullptr) taken.first = before.next;
  taken.last = last;
  taken.count += at_most - left;
  add_used(slab, at_most - left);
}

// To be called after blocks of a slab were taken.
[[gnu::always_inline]] inline void relist_after_use(ThreadHeap& heap, Span& slab) noexcept
    TS_REQUIRES(heap) {
  if (is_queued(slab) && !is_arena(heap)) [[unlikely]]
    unqueue_sparse_slab(heap, slab);
  slab.sparse_limit = sparse_limit_of(slab);
  if (has_free_block(slab)) {
    if (slab.purged_blocks != 0 && count_free_blocks(slab) <= slab.purged_blocks) [[unlikely]]
      return move_to_end(heap, slab);
    return set_fast_free_threshold(slab);
  }
  unlink_partial(heap, slab);
  // No free block is left that could have a key or lack one.
  reset_keys(slab);
  if (is_keyless(slab)) set_keyless(slab, false);
}

// How many blocks a refill takes if they are dirty already.
inline std::uint32_t wanted_blocks(const ThreadHeap& heap, unsigned size_class) noexcept {
  const std::uint32_t capacity = heap.capacities[size_class];
  return std::min(std::max(size_classes[size_class].bin_blocks, capacity / 2), capacity);
}

// Takes carved blocks, which are dirty already, until there are enough of them or none are left. If
// the list reaches a slab that has only purged blocks, most slabs after it are alike: the search
// ends there, unless nothing was found yet.
Taken take_carved(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap) {
  const std::uint32_t wanted = wanted_blocks(heap, size_class);
  Taken taken;
  Span* slab = heap.partial[size_class];
  while (slab != nullptr && taken.count < (wanted + 1) / 2) {
    Span* const next = slab->next;
    const std::uint32_t before = taken.count;
    // Otherwise its free blocks are fresh or, while other threads send frees, not counted yet.
    if (used(*slab) < slab->carved) take_blocks(*slab, slab->carved, wanted - taken.count, taken);
    if (taken.count != before) {
      relist_after_use(heap, *slab);
    } else if (slab->purged_blocks != 0) {
      if (before != 0) break;
      hooks::restore_blocks(heap, *slab);
      continue;
    } else if (!has_free_block(*slab)) {
      unlink_partial(heap, *slab);  // left listed by a longjmp out of a refill
    }
    slab = next;
  }
  return taken;
}

// How many fresh blocks a refill takes: 4 KiB of them if it touches memory for the first time.
inline std::uint32_t fresh_blocks(const ThreadHeap& heap, const Span& slab) noexcept {
  const std::uint32_t few = size_classes[slab.size_class].carve_blocks;
  return slab.zeroed ? few : std::max(few, wanted_blocks(heap, slab.size_class));
}

// Links adjacent blocks into a list.
inline Block* link_in_a_row(std::byte* first, std::size_t bytes, std::uint32_t count) noexcept {
  std::byte* const last = first + (count - 1) * bytes;
  for (std::byte* at = first; at != last; at += bytes)
    set_key(at)->next = reinterpret_cast<Block*>(at + bytes);
  set_key(last)->next = nullptr;
  return reinterpret_cast<Block*>(first);
}

// Takes up to `at_most` fresh blocks; none if no slab has any.
Taken take_fresh(ThreadHeap& heap, unsigned size_class, std::uint32_t at_most) noexcept
    TS_REQUIRES(heap) {
  Span* slab = heap.partial[size_class];
  while (slab != nullptr && slab->carved == slab->slab_blocks) slab = slab->next;
  if (slab == nullptr) return {};
  const SizeClass& c = size_classes[size_class];
  const std::uint32_t first = slab->carved;
  const std::uint32_t end = std::min<std::uint32_t>(
      first + std::min(at_most, fresh_blocks(heap, *slab)), slab->slab_blocks);
  Block* const block = link_in_a_row(memory_of(slab) + std::size_t{first} * c.block_bytes,
                                     c.block_bytes, end - first);
  for (std::uint32_t number = first / 64 * 64; number < end; number += 64) {
    Atomic<std::uint64_t>& word = free_word_of(*slab, number / 64);
    const std::uint64_t below = first > number ? lowest_bits(first - number) : 0;
    const std::uint64_t taken = lowest_bits(end - number) & ~below;
    word.store(word.load(std::memory_order_relaxed) & ~taken, std::memory_order_relaxed);
  }
  slab->carved = static_cast<std::uint16_t>(end);
  add_used(*slab, end - first);
  relist_after_use(heap, *slab);
  return {block, nullptr, end - first};
}

// Refills a bypassed bin, which stays empty (scavenge.h).
[[gnu::noinline]] Block* refill_bypassed(ThreadHeap& heap, unsigned size_class) noexcept
    TS_REQUIRES(heap) {
  --heap.bypassed_refills;
  heap.is_to_scavenge = true;
  const auto take_one = [&]() TS_REQUIRES(heap) {
    for (Span* slab = heap.partial[size_class]; slab != nullptr; slab = slab->next) {
      if (slab->purged_blocks != 0) hooks::restore_blocks(heap, *slab);
      Taken taken;
      take_blocks(*slab, slab->carved, 1, taken);
      if (taken.first == nullptr) continue;
      relist_after_use(heap, *slab);
      return taken.first;
    }
    return static_cast<Block*>(nullptr);
  };
  Block* block = take_one();
  if (block == nullptr && collect(heap)) block = take_one();
  return block != nullptr ? block : take_fresh(heap, size_class, 1).first;
}

}  // namespace

Block* refill(ThreadHeap& heap, unsigned size_class) noexcept {
  if constexpr (counting) count_event(Event::bin_refills);
  count_refill(heap);
  // malloc found no block that it could pop, so the list should have ended, and the count with it.
  Block* const head = first_block(heap.bins[size_class]);
  if (head != nullptr || counted_blocks(heap, size_class) > count_tolerance) [[unlikely]]
    drop_damaged_bin(heap, size_class, head);
  if (heap.bypassed_refills != 0) [[unlikely]]
    return refill_bypassed(heap, size_class);
  if (Block* const first = refill_from_spare_list(heap, size_class); first != nullptr) return first;
  widen_bin(heap, size_class);
  Taken taken = take_carved(heap, size_class);
  if (taken.first == nullptr && collect(heap)) taken = take_carved(heap, size_class);
  if (taken.first == nullptr) {
    open_bin_wide(heap, size_class);
    taken = take_fresh(heap, size_class, max_slab_blocks);
    if (taken.first == nullptr) return nullptr;
  }
  put_into_bin(heap, size_class, taken.first, taken.count);
  return taken.first;
}

Block* refill_from(ThreadHeap& heap, Span& span) noexcept {
  const unsigned size_class = span.size_class;
  add_slab(heap, span);
  // An interposed system function may have allocated in the meantime.
  if (heap.bypassed_refills != 0 || first_block(heap.bins[size_class]) != nullptr)
    return take_fresh(heap, size_class, 1).first;
  open_bin_wide(heap, size_class);
  const Taken taken = take_fresh(heap, size_class, max_slab_blocks);
  put_into_bin(heap, size_class, taken.first, taken.count);
  return taken.first;
}

Block* fill_bin_from_new_slab(ThreadHeap& heap, unsigned size_class) noexcept {
  const std::size_t pages = [&] {
    const HeapHold hold{heap};  // against a reclaim of a slab by another thread
    return next_slab_pages(heap, size_class);
  }();
  Span* const span = allocate_span(pages, 1, size_class);
  if (span == nullptr) return nullptr;
  const HeapHold hold{heap};
  return refill_from(heap, *span);
}

}  // namespace ts::engine
