// What malloc and free do, thread by thread. Each thread has a heap of slabs and, in front of it, a
// bin per size class: malloc pops from a bin and free pushes onto one, without atomics, if the block
// belongs to the thread's own heap. The way of a block:
//
//   page heap -> slab (refill) -> bin -> program -> bin -> slab (overflow) -> page heap
//
// A block that another thread frees goes home by its slab's remote bits (thread_heap.cpp). A thread
// that ends leaves its heap, whole, to the next one that starts.
#pragma once

#include "engine/layout.h"

namespace ts::engine {

// Stands in for the heap of a thread that has none yet: its bins are empty and have no room, so
// that neither fast path has to ask. Never written to.
inline constinit ThreadHeap no_heap;

inline constinit thread_local ThreadHeap* current_heap = &no_heap;

// A block of the class, in any way; null if there is no memory.
[[gnu::noinline]] void* allocate_slow(unsigned size_class) noexcept;
// Takes a block that the bins did not: another heap's, one too many, a large one, or none at all.
[[gnu::noinline]] void release_slow(void* p, Entry entry) noexcept;

inline void* allocate_small(unsigned size_class) noexcept {
  Bin& bin = current_heap->bins[size_class];
  Block* const block = bin.head;
  if (block == nullptr) [[unlikely]]
    return allocate_slow(size_class);
  bin.head = block->next;
  ++bin.room;
  return block;
}

inline void release(void* p) noexcept {
  const Entry entry = entry_of(p);
  ThreadHeap* const heap = current_heap;
  const Entry kind = entry ^ heap->self;
  // Another heap's number leaves high bits; a large block's, and no block's, is 0.
  if (kind >= heap_unit) [[unlikely]]
    return release_slow(p, entry);
  Bin& bin = heap->bins[kind & class_mask];
  if (bin.room == 0) [[unlikely]]
    return release_slow(p, entry);
  --bin.room;
  auto* const block = static_cast<Block*>(p);
  block->next = bin.head;
  bin.head = block;
}

// Aligned requests, and all that are no slab's: see engine.h.
void* allocate_large(std::size_t bytes, std::size_t alignment, bool* zeroed) noexcept;

// Takes what was given back to the heaps that ended threads left, some of them in turn, and returns
// their empty slabs to the page heap.
void drain_orphans(std::size_t at_most) noexcept;
// Puts all that the calling thread holds aside back.
void drain_own() noexcept;

void fork_prepare() noexcept;
void fork_parent() noexcept;
void fork_child() noexcept;

}  // namespace ts::engine
