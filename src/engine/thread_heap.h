// What malloc and free do, thread by thread. Each thread has a heap of slabs and, in front of it, a
// bin per size class: malloc pops from a bin and free pushes onto one, without atomics, if the
// block belongs to the thread's own heap. The way of a block:
//
//   page heap -> slab (refill) -> bin -> program -> bin -> slab (overflow) -> page heap
//
// A block that another thread frees goes home by remote_frees.h. A thread that ends leaves its
// heap, whole, to the next one that starts.
#pragma once

#include "engine/layout.h"
#include "engine/misuse.h"

namespace ts::engine {

// Stand in for the heap of a thread that has none yet, and of one that is ending: the bins are
// empty, and no block is their own, so that neither fast path has to ask. Never written to.
inline constinit const HeapFront no_heap_image;
inline constinit const HeapFront ended_heap_image;
inline HeapFront* const no_heap = const_cast<HeapFront*>(&no_heap_image);
inline HeapFront* const ended_heap = const_cast<HeapFront*>(&ended_heap_image);

inline constinit thread_local HeapFront* current_heap = const_cast<HeapFront*>(&no_heap_image);

inline bool has_heap() noexcept { return current_heap->self != nobody; }
// Of a thread that has one.
inline ThreadHeap& own_heap() noexcept { return static_cast<ThreadHeap&>(*current_heap); }

// Where the bins of the classes are that most programs ask for: offsets from the first, by
// multiples of fine_unit.
inline constexpr auto bin_offsets = [] {
  std::array<std::uint16_t, fine_classes.size()> offsets{};
  for (std::size_t i = 0; i < offsets.size(); ++i)
    offsets[i] = static_cast<std::uint16_t>(fine_classes[i] * sizeof(Bin));
  return offsets;
}();

inline Bin& bin_at(HeapFront* heap, std::size_t offset) noexcept {
  return *reinterpret_cast<Bin*>(reinterpret_cast<std::byte*>(heap->bins) + offset);
}

// A block for an empty bin of the current heap, in any way; null if there is no memory.
[[gnu::noinline]] void* allocate_slow(const Bin& bin) noexcept;
// Takes a block that the bin, of the current heap, has no room for.
[[gnu::noinline]] void release_overflow(void* p, std::size_t bin_offset, HeapFront* heap) noexcept;
// Takes a block that is not the current heap's: another heap's, a large one, or none at all. `kind` is
// its entry, exclusive-or with the current heap's number.
[[gnu::noinline]] void release_slow(void* p, Entry kind) noexcept;

inline void* allocate_small(std::size_t bin_offset) noexcept {
  Bin& bin = bin_at(current_heap, bin_offset);
  Block* const block = bin.head;
  if (is_below(address_of(block), lowest_block)) [[unlikely]]
    return allocate_slow(bin);
  bin.head = block->next;
  ++bin.room;
  return block;
}

// Null is nobody's, as all that is not ours.
inline void release(void* p) noexcept {
  const Entry entry = entry_of(p);
  HeapFront* const heap = current_heap;
  // Another heap's number leaves high bits; so do a large block's, and no block's, which is 0.
  const Entry kind = entry ^ heap->self;
  if (kind >= heap_unit) [[unlikely]]
    return release_slow(p, kind);
  // The bin by its offset each time, which is one instruction less than by its address.
  const auto bin = [heap](std::size_t offset) -> Bin& {
    return *reinterpret_cast<Bin*>(reinterpret_cast<std::byte*>(heap) + offset +
                                   offsetof(HeapFront, bins));
  };
  std::size_t offset = kind;
  Block* const head = bin(offset).head;
  offset = unrelated(offset);
  // A block that is first in its bin is freed for the second time.
  if (head == p) [[unlikely]]
    return report_double_free(p);
  if (falls_below_zero(bin(offset).room)) [[unlikely]]
    return release_overflow(p, offset, heap);
  offset = unrelated(offset);
  put_before(bin(offset).head, static_cast<Block*>(p), head);
}

// Null, and ENOMEM in errno.
[[gnu::cold]] void* out_of_memory() noexcept;

// Puts all that the calling thread and ended ones hold aside back.
void drain_all() noexcept;

// As PageHeap::allocate, from anywhere; before memory is touched for the first time, what threads
// have put aside is taken back.
Span* allocate_span(std::size_t granules, std::size_t alignment_granules,
                    unsigned size_class) noexcept;

void fork_prepare() noexcept;
void fork_parent() noexcept;
void fork_child() noexcept;

}  // namespace ts::engine
