// The slabs of a heap: the list per class of slabs that have free blocks, blocks that are freed
// into their slab, and the retirement of empty slabs.
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

inline bool is_listed(const Span& slab) noexcept {
  return use_of(slab).fast_free_threshold != unlisted;
}

// If a long slab has at most this many used blocks, a free checks whether bins pin it
// (move_fast_free_threshold). Bins of classes with long slabs of several blocks hold no more than
// that.
inline constexpr std::uint16_t max_used_to_flush = 8;
static_assert(std::ranges::all_of(size_classes, [](const SizeClass& c) {
  return c.slab_pages == 1 || c.block_bytes > max_shared_bytes ||
         c.wide_bin_blocks <= max_used_to_flush;
}));

// To be called when a listed slab's `used` rose, or its sparse_limit changed.
inline void set_fast_free_threshold(Span& slab) noexcept {
  const std::uint16_t least = slab.pages == 1 ? 0 : max_used_to_flush;
  use_of(slab).fast_free_threshold =
      static_cast<std::int16_t>(std::max<std::uint16_t>(slab.sparse_limit, least));
}

// Sets or clears keyless_bit in the slab's entries. Other threads may read them meanwhile: either
// value is right for them.
void set_keyless(Span& slab, bool is_keyless) noexcept;
inline bool is_keyless(const Span& slab) noexcept { return (span_entry(slab) & keyless_bit) != 0; }

// Gives all free blocks of a slab with keyless_bit their keys, so that free() need not check their
// bits. Not for slabs with purged blocks, whose memory must not be touched.
void set_keys(Span& slab) noexcept TS_NO_ANALYSIS;

// Adds a span, as a slab with no block carved, to the heap's list of the class.
void add_slab(ThreadHeap& heap, Span& span) noexcept TS_REQUIRES(heap);

// Links a slab that has free blocks into the list of its class.
void link_partial(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// Unlinks a slab without free blocks from the list of its class.
void unlink_partial(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// Moves a slab that has only purged blocks to the end of its list, since they cost page faults.
void move_to_end(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// Takes a slab without used blocks out of the heap. From then on it belongs to the caller, who
// returns it to the page heap by retire_slab(), which needs no hold.
void take_slab_out(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);
void retire_slab(Span& slab) noexcept;

inline void add_used(Span& slab, std::uint32_t blocks) noexcept {
  use_of(slab).used.store(used(slab) + blocks, std::memory_order_relaxed);
}

// Subtracts `blocks` from the slab's used ones. More than there are can only be freed by a double
// free, which is reported.
inline void sub_used(Span& slab, std::uint32_t blocks) noexcept {
  const std::uint32_t before = used(slab);
  if (before < blocks) [[unlikely]] {
    report_misuse(Misuse::damaged_list, FoundBy::a_later_call, memory_of(&slab),
                  size_classes[slab.size_class].block_bytes);
    blocks = before;
  }
  use_of(slab).used.store(before - blocks, std::memory_order_relaxed);
}

// To be called when blocks were freed into a slab: lists it, or retires it if it is empty. One
// empty slab of a class is kept, if it is a short one of several blocks, so that a few allocations
// and frees do not take and return pages each time. False if the slab was retired.
bool relist_or_retire(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// Sets the bit of a block that is freed; false if it is already free. `used` stays unchanged.
inline bool set_free(Span& slab, std::uint32_t number) noexcept {
  Atomic<std::uint64_t>& word = free_word_of(slab, number / 64);
  std::uint64_t bits = word.load(std::memory_order_relaxed);
  const bool was_free = set_bit(bits, number);
  word.store(bits, std::memory_order_relaxed);
  return !was_free;
}

// To be called before a slab has free blocks with keys. Blocks of long slabs always get theirs:
// they are few, and their lines far apart.
inline void reset_keys(Span& slab) noexcept { slab.has_keys = slab.pages > 1; }

// To be called when a block without a key is about to become free: it gets one if others of its
// slab may have one.
inline void note_key(Span& slab, void* p) noexcept {
  if (slab.has_keys) {
    set_key(p);
  } else if (!is_keyless(slab)) {
    set_keyless(slab, true);
  }
}

// Frees a block from a bin into its slab, and lowers `used`; false if the block is already free.
inline bool push_to_slab(ThreadHeap& heap, void* p, const BlockPlace& place) noexcept
    TS_REQUIRES(heap) {
  Span& slab = page_map.spans[place.slab_page];
  if (!set_free(slab, place.number)) return false;
  note_key(slab, clear_key(static_cast<Block*>(p)));
  const auto others = static_cast<std::int32_t>(used(slab)) - 1;
  if (others > use_of(slab).fast_free_threshold) {
    use_of(slab).used.store(static_cast<std::uint32_t>(others), std::memory_order_relaxed);
  } else {
    sub_used(slab, 1);
    relist_or_retire(heap, slab);
  }
  return true;
}

// Retires all empty slabs.
void retire_empty_slabs(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

}  // namespace ts::engine
