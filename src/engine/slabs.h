// A heap's slabs of one class: the list of those that have blocks to give, how a block comes home
// to its slab, and when a slab goes back to the page heap. Only who holds the heap (sweep.h) may
// call what has a heap for an argument.
#pragma once

#include "base/check.h"
#include "engine/layout.h"

namespace ts::engine {

// How many granules the heap's next slab of the class has.
inline std::size_t next_slab_granules(const ThreadHeap& heap, unsigned size_class) noexcept {
  const SizeClass& c = size_classes[size_class];
  return heap.slabs[size_class] == 0 ? c.first_slab_granules : c.slab_granules;
}

// Makes a span of a class a slab in the heap's list, none of its blocks carved yet.
void add_slab(ThreadHeap& heap, Span& span) noexcept;

// Takes a slab off the list.
void unlist(ThreadHeap& heap, Span& slab) noexcept;

// Takes a slab of which nothing is used out of the heap; from then on it is the caller's alone, who
// gives it to the page heap, which needs no hold.
void take_slab_out(ThreadHeap& heap, Span& slab) noexcept;
void give_slab_back(Span& slab) noexcept;

// Puts a block on its slab's list, without a word about how many are in use.
inline void push(Span& slab, Block* block) noexcept {
  put_before(slab.blocks, block);
  ++slab.free_blocks;
}

inline std::uint32_t used(const Span& slab) noexcept {
  return slab.used.load(std::memory_order_relaxed);  // the owner's own; others only look
}
inline void set_used(Span& slab, std::uint32_t blocks) noexcept {
  slab.used.store(blocks, std::memory_order_relaxed);
}

// So many blocks that were in use are no longer. More than that come home only if one was freed
// twice.
inline void take_count_home(Span& slab, std::uint32_t blocks) noexcept {
  const std::uint32_t before = used(slab);
  if (before < blocks) [[unlikely]]
    report_misuse(Misuse::damaged_list, FoundBy::a_later_call, memory_of(&slab),
                  size_classes[slab.size_class].block_bytes);
  set_used(slab, before < blocks ? 0 : before - blocks);
}

// The slab has got blocks back: lists it if it was not, and returns it to the page heap if it is
// empty. One empty slab of a class stays, if it is a short one, so that a program that takes and
// frees a few blocks does not go to the page heap each time. False if the slab is gone.
bool settle(ThreadHeap& heap, Span& slab) noexcept;

// A block that was in use comes home; false if its slab is gone.
inline bool take_home(ThreadHeap& heap, Span& slab, Block* block) noexcept {
  push(slab, block);
  take_count_home(slab, 1);
  return settle(heap, slab);
}

// Returns all empty slabs.
void release_empty_slabs(ThreadHeap& heap) noexcept;

}  // namespace ts::engine
