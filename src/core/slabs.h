// The slabs of a heap: the list per class of those with blocks to give, blocks that come back, and
// the retirement of empty slabs.
#pragma once

#include <algorithm>

#include "base/check.h"
#include "core/heap_hold.h"
#include "core/page_map.h"

namespace ts::engine {

// The length in pages of the heap's next slab of the class.
inline std::size_t next_slab_pages(const ThreadHeap& heap, unsigned size_class) noexcept
    TS_REQUIRES(heap) {
  const SizeClass& c = size_classes[size_class];
  return heap.slabs[size_class] == 0 ? c.first_slab_pages : c.slab_pages;
}

inline bool is_listed(const Span& slab) noexcept { return slab.fast_free_threshold != unlisted; }

// Of a long slab with so few used blocks, frees look whether bins pin it
// (move_fast_free_threshold). The bins of classes with long slabs of several blocks hold no more.
inline constexpr std::uint16_t max_used_to_flush = 8;
static_assert(std::ranges::all_of(size_classes, [](const SizeClass& c) {
  return c.slab_pages == 1 || c.block_bytes > max_shared_bytes ||
         c.wide_bin_blocks <= max_used_to_flush;
}));

// To be called when a listed slab has more used blocks, or another key.
inline void set_fast_free_threshold(Span& slab) noexcept {
  const std::uint16_t least = slab.pages == 1 ? 0 : max_used_to_flush;
  slab.fast_free_threshold =
      static_cast<std::int16_t>(std::max<std::uint16_t>(slab.sparse_limit, least));
}

// Sets keyless_bit in the slab's entries, or takes it away. Other threads may read them meanwhile:
// either value is right to them.
void set_keyless(Span& slab, bool is_keyless) noexcept;
inline bool is_keyless(const Span& slab) noexcept { return (span_entry(slab) & keyless_bit) != 0; }

// Gives a key to all free blocks of a slab with keyless_bit, so that free need not look at their
// bits. Not of one with purged blocks, whose memory is not to be touched.
void set_keys(Span& slab) noexcept TS_NO_ANALYSIS;

// Makes a span of a class a slab in the heap's list, with no block carved.
void add_slab(ThreadHeap& heap, Span& span) noexcept TS_REQUIRES(heap);

// Links a slab that has blocks to give into the list of its class.
void link_partial(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// Unlinks a slab without blocks to give from the list of its class.
void unlink_partial(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// Moves a slab of purged blocks alone to the end of its list: they cost more than others do.
void move_behind_others(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// Takes a slab without used blocks out of the heap. It belongs to the caller alone then, until
// retire_slab() returns it to the page heap, for which no hold is needed.
void take_slab_out(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);
void retire_slab(Span& slab) noexcept;

inline std::uint32_t used(const Span& slab) noexcept {
  return slab.used.load(std::memory_order_relaxed);  // the owner's own; others only look
}
inline void add_used(Span& slab, std::uint32_t blocks) noexcept {
  slab.used.store(used(slab) + blocks, std::memory_order_relaxed);
}

// Takes `blocks` from the slab's used ones. More than there are come back only after a double free,
// which is reported.
inline void sub_used(Span& slab, std::uint32_t blocks) noexcept {
  const std::uint32_t before = used(slab);
  if (before < blocks) [[unlikely]] {
    report_misuse(Misuse::damaged_list, FoundBy::a_later_call, memory_of(&slab),
                  size_classes[slab.size_class].block_bytes);
    blocks = before;
  }
  slab.used.store(before - blocks, std::memory_order_relaxed);
}

// To be called when a slab got blocks back: lists it, or retires it if it is empty. One empty slab
// of a class stays, if it is a short one of several blocks, so that few allocations and frees do
// not take pages each time. False if the slab was retired.
bool relist_or_retire(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// A used block comes back: false if it is free already. `used` stays as it is.
inline bool set_free(Span& slab, std::uint32_t number) noexcept {
  Atomic<std::uint64_t>& word = free_word_of(slab, number / 64);
  std::uint64_t bits = word.load(std::memory_order_relaxed);
  const bool was_free = set_bit(bits, number);
  word.store(bits, std::memory_order_relaxed);
  return !was_free;
}

// Before a slab has free blocks with a key. Those of a long slab always get theirs: they are few,
// and their lines far apart.
inline void reset_keys(Span& slab) noexcept { slab.has_keys = slab.pages > 1; }

// To be called when a block that has no key is about to be free: it gets one if others of its slab
// may have one.
inline void note_key(Span& slab, void* p) noexcept {
  if (slab.has_keys) {
    set_key(p);
  } else if (!is_keyless(slab)) {
    set_keyless(slab, true);
  }
}

// A used block comes back from a bin, and `used` falls: false if it is free already.
inline bool push_to_slab(ThreadHeap& heap, void* p, const BlockPlace& place) noexcept
    TS_REQUIRES(heap) {
  Span& slab = page_map.spans[place.slab_page];
  if (!set_free(slab, place.number)) return false;
  note_key(slab, clear_key(static_cast<Block*>(p)));
  const auto others = static_cast<std::int32_t>(used(slab)) - 1;
  if (others > slab.fast_free_threshold) {
    slab.used.store(static_cast<std::uint32_t>(others), std::memory_order_relaxed);
  } else {
    sub_used(slab, 1);
    relist_or_retire(heap, slab);
  }
  return true;
}

// Retires all empty slabs.
void retire_empty_slabs(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

}  // namespace ts::engine
