#include "core/thread_heap.h"

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "base/event_counts.h"
#include "core/attention.h"
#include "core/cache_bins.h"
#include "core/common_heap.h"
#include "core/deferred_work.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/invariants.h"
#include "core/large_blocks.h"
#include "core/refill.h"
#include "core/remote_frees.h"
#include "core/slabs.h"
#include "core/span_supply.h"
#include "core/spare_lists.h"
#include "core/sparse_slabs.h"

namespace ts::engine {
namespace {

[[gnu::noinline]] void* allocate_without_heap(std::size_t bytes, unsigned size_class) noexcept {
  // If the thread adopts a heap, its bin may have blocks.
  if (this_thread.heap == no_heap && attach_heap() != nullptr)
    return allocate_small(bytes, size_class * sizeof(CacheBin));
  void* const p = allocate_from_common(size_class);
  return p != nullptr ? p : out_of_memory();
}

void* hand_out(Block* block) noexcept {
  return block != nullptr ? clear_key(block) : out_of_memory();
}

[[gnu::noinline]] void* hand_out_after_work(Block* block) noexcept {
  do_deferred_work();
  return hand_out(block);
}

[[gnu::always_inline]] inline void* allocate_by_refill(unsigned size_class) noexcept {
  ThreadHeap& heap = current_heap();
  Block* const block = fill_bin(heap, size_class);
  if constexpr (debug_level >= 2) {
    const HeapHold hold{heap};
    check_slow_path(heap);
  }
  if (has_deferred_work(heap)) [[unlikely]]
    return hand_out_after_work(block);
  return hand_out(block);
}

// The hook may allocate, after which the bin may have blocks. Later requests for attention wait for
// the next malloc.
[[gnu::noinline]] void* allocate_after_attention(std::size_t bytes, unsigned size_class) noexcept {
  hooks::attend();
  return allocate_small_or(bytes, size_class * sizeof(CacheBin), [=](std::size_t) {
    return is_sampling(current_heap()) ? hooks::allocate_sampled(bytes, size_class)
                                       : allocate_by_refill(size_class);
  });
}

// Allocates from the empty bin of a thread that has no heap, or whose heap samples.
[[gnu::noinline]] void* allocate_other(std::size_t bytes, unsigned size_class) noexcept {
  if (!has_heap()) return allocate_without_heap(bytes, size_class);
  if (needs_attention()) [[unlikely]]
    return allocate_after_attention(bytes, size_class);
  return hooks::allocate_sampled(bytes, size_class);
}

// Frees a block of an arena, from a thread that is not in its scope. The free is complete when it
// returns, so that the arena can be destroyed then: no batch and no bin keeps the block.
[[gnu::noinline]] void release_to_arena(void* p, PageMapEntry entry) noexcept {
  const BlockPlace place = place_of(p, size_class_of(entry));
  if (!place.is_beginning || has_key(p) || is_free(place)) [[unlikely]]
    return static_cast<void>(report_invalid_pointer(p, FoundBy::free));
  if constexpr (counting) count_event(Event::remote_frees);
  release_remote_at_once(place, FoundBy::free);
}

// Frees an arena's block, or handles a pointer to no block of the engine.
[[gnu::noinline]] void release_rare(void* p, PageMapEntry entry) noexcept {
  if (p == nullptr) return;
  const int saved_errno = errno;
  if (entry < arena_bit || (entry & large_entry) != 0) {
    report_invalid_pointer(p, FoundBy::free);
  } else {
    if (!hooks::release_sampled(p, entry)) release_to_arena(p, entry);
  }
  errno = saved_errno;
}

// Frees a block of a thread's slab, from a thread without a heap or in a scope.
[[gnu::noinline]] void release_without_heap(void* p, PageMapEntry entry) noexcept {
  if (is_in_scope()) {
    const OutOfScope out_of_scope;
    return release(p);  // often the thread's own
  }
  // The C library frees after a thread's last destructors. A thread that gets a heap there never
  // gives it back, so the first few frees of a thread do without one.
  constexpr std::uint32_t most_early_frees = 16;
  if (this_thread.heap == no_heap && ++this_thread.early_frees > most_early_frees) {
    const int saved_errno = errno;
    ThreadHeap* const heap = attach_heap();
    errno = saved_errno;
    if (heap != nullptr) return release(p);  // the block may belong to the adopted heap
  }
  const BlockPlace place = place_of(p, size_class_of(entry));
  if (!place.is_beginning) [[unlikely]]
    return static_cast<void>(report_invalid_pointer(p, FoundBy::free));
  if constexpr (counting) count_event(Event::remote_frees);
  // A thread that is ending gets no heap for this: nothing would abandon it once its destructors
  // are done.
  release_remote_at_once(place, FoundBy::free);
}

// ---- frees that find no room in their bin ----
//
//   bin        slab's keyless_bit   free checks           and the block goes into
//   has room   clear                its key               the bin: the fast path
//   has room   set                  its bit and its key   the bin, after set_keys(slab)
//   full       either               its bit and its key   the slab; after 12 such frees in a row,
//                                                         the bin is emptied (put_aside) and takes
//                                                         it, or is bypassed
//   bypassed   either               its bit               the slab, untouched; keyless_bit is set

// The rest of release_to_slab, if few blocks of the slab are used, or if all were: the slab may
// have to be listed or retired, its bin flushed, or it became sparse.
[[gnu::noinline]] void finish_release(ThreadHeap& heap, Span& slab) noexcept {
  const unsigned size_class = slab.size_class;
  {
    const HeapHold hold{heap};
    sub_used(slab, 1);
    const bool is_sparse = used(slab) == slab.sparse_limit;
    if (relist_or_retire(heap, slab)) move_fast_free_threshold(heap, slab);
    if (is_sparse) {
      note_sparse_slab(heap, size_class);
      heap.is_to_scavenge = has_to_scavenge(heap);
    }
    if constexpr (debug_level >= 2) check_slow_path(heap);
  }
  if (has_deferred_work(heap)) [[unlikely]]
    do_deferred_work();
}

// Frees a block into its slab, without touching the block: the caller has given it a key, or its
// slab keyless_bit. Needs no busy mark: a forked child may see only the first of these stores, and
// then a free block counts as used, which is harmless.
[[gnu::always_inline]] inline void release_to_slab(void* p, std::size_t slab_page,
                                                   std::size_t number) noexcept {
  if constexpr (counting) count_event(Event::bin_overflows);
  SlabUse& use = page_map.uses[slab_page];
  Atomic<std::uint64_t>& word = free_word_at(slab_page, number / 64);
  std::uint64_t bits = word.load(std::memory_order_relaxed);
  if (set_bit(bits, number)) [[unlikely]]
    return static_cast<void>(report_invalid_pointer(p, FoundBy::free));
  word.store(bits, std::memory_order_relaxed);
  const std::uint32_t others = use.used.load(std::memory_order_relaxed) - 1;
  // A slab whose blocks were all used has the threshold `unlisted`; -1 after a double free.
  if (static_cast<std::int16_t>(others) <= use.fast_free_threshold) [[unlikely]]
    return finish_release(current_heap(), page_map.spans[slab_page]);
  // release: without a hold, the slab may be reclaimed from here on (pairs with is_reclaimable)
  use.used.store(others, std::memory_order_release);
}

// Frees a block whose bit does not suffice to show whether it is already free, because a bin may
// contain it: checks the key as well. The block goes into the bin if there is room, else into the
// slab.
[[gnu::noinline]] void release_checking_key(void* p, CacheBin& bin, std::size_t slab_page,
                                            std::uint32_t number) noexcept {
  if (is_free(slab_page, number) || has_key(p)) [[unlikely]]
    return static_cast<void>(report_invalid_pointer(p, FoundBy::free));
  ThreadHeap& heap = current_heap();
  Span& slab = page_map.spans[slab_page];
  if (bin.capacity_left <= 0 && bin.head != nullptr && is_burst(heap, slab.size_class, bin)) {
    const HeapHold hold{heap};
    if (!put_aside(heap, slab.size_class)) bypass_bin(heap, slab.size_class);
  }
  if (bin.capacity_left > 0) {
    // So further frees into the slab take the fast path again.
    if (is_keyless(slab) && slab.purged_blocks == 0) set_keys(slab);
    --bin.capacity_left;
    return push_front(bin.head, set_key(p));
  }
  note_key(slab, p);
  release_to_slab(p, slab_page, number);
}

}  // namespace

void* allocate_slow(std::size_t bytes, std::size_t bin_offset) noexcept {
  const auto size_class = static_cast<unsigned>(bin_offset / sizeof(CacheBin));
  if (is_sampling(*this_thread.heap)) [[unlikely]]  // true as well of no_heap and ended_heap
    return allocate_other(bytes, size_class);
  if (hooks::has_guard()) [[unlikely]] {
    if (void* const p = hooks::allocate_guarded(size_class); p != nullptr) return p;
  }
  if (needs_attention()) [[unlikely]]
    return allocate_after_attention(bytes, size_class);
  return allocate_by_refill(size_class);
}

std::size_t drop_damage(std::size_t bytes, Block* popped, std::size_t bin_offset) noexcept {
  put_back_key(popped);  // it may be in use
  drop_damaged_bin(current_heap(), static_cast<unsigned>(bin_offset / sizeof(CacheBin)), popped);
  return bytes;
}

void* allocate_after_damage(Block* popped, std::size_t bin_offset) noexcept {
  const std::size_t bytes = size_classes[bin_offset / sizeof(CacheBin)].block_bytes;
  return allocate_slow(drop_damage(bytes, popped, bin_offset), bin_offset);
}

void report_double_free(void* p, CacheBin& bin) noexcept {
  ++bin.capacity_left;  // as it was before release()
  report_invalid_pointer(p, FoundBy::free);
}

void release_overflow(void* p, CacheBin& bin, std::size_t page) noexcept {
  ++bin.capacity_left;  // as it was before release()
  const auto [slab_page, number, is_beginning] = place_in(p, page, bin.reciprocal);
  if (bin.head != bypassed_bin()) return release_checking_key(p, bin, slab_page, number);
  set_keyless(page_map.spans[slab_page], true);
  release_to_slab(p, slab_page, number);
}

void release_keyless(void* p, CacheBin& bin, std::size_t page) noexcept {
  // place_in(), but with the number in 64 bits: saves three instructions
  const std::uint32_t offset = offset_in_slab(p, page_map.pages[page]);
  const std::uint64_t product = std::uint64_t{offset} * bin.reciprocal;
  const std::size_t slab_page = page - (offset >> page_shift);
  const std::size_t number = product >> 32;
  if (static_cast<std::uint32_t>(product) >= bin.reciprocal) [[unlikely]]
    return static_cast<void>(report_invalid_pointer(p, FoundBy::free));
  if (bin.head != bypassed_bin()) [[unlikely]]
    return release_checking_key(p, bin, slab_page, static_cast<std::uint32_t>(number));
  release_to_slab(p, slab_page, number);
}

void release_slow(void* p, PageMapEntry kind, std::size_t page, HeapFront* heap) noexcept {
  // Without the bit that another thread may have changed in the meantime.
  const PageMapEntry entry =
      (kind ^ heap->self.load(std::memory_order_relaxed)) & ~(sampling_bit | keyless_bit);
  if (!is_of_thread_slab(entry))
    return entry == large_entry ? release_large(p, page) : release_rare(p, entry);
  const PageMapEntry own_number = kind ^ entry;
  if (own_number >= arena_bit) [[unlikely]]  // an arena's, or there is no heap
    return release_without_heap(p, entry);
  // The class's bin has the reciprocal, in a line that is probably cached.
  CacheBin& bin = bin_at(heap, kind & (class_mask | sampling_bit));
  const BlockPlace place = place_in(p, page, bin.reciprocal);
  if (!place.is_beginning) [[unlikely]]
    return static_cast<void>(report_invalid_pointer(p, FoundBy::free));
  if constexpr (counting) count_event(Event::remote_frees);
  const SizeClass& c = size_class_of(entry);
  // A block that shares no cache line with others stays here, where its lines are. Other blocks are
  // not read, because their lines are cold or another thread's. Their bits reveal a second free;
  // their keys reveal one by the owner, when it collects them.
  if (c.block_bytes % cache_line_bytes == 0 && bin.capacity_left > 0) {
    if (has_key(p)) [[unlikely]]
      return static_cast<void>(report_invalid_pointer(p, FoundBy::free));
    --bin.capacity_left;
    return push_front(bin.head, set_key(p));
  }
  release_remote(static_cast<ThreadHeap&>(*heap), p, place, c, FoundBy::free);
}

}  // namespace ts::engine
