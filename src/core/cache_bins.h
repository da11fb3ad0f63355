// The cache bins of a heap: their counts, and how they are flushed into slabs. Called by the owner,
// or by a thread that took over an abandoned heap; both hold the heap.
#pragma once

#include <algorithm>

#include "core/heap_hold.h"
#include "core/page_map.h"

namespace ts::engine {

// The length of a list and its count may differ by this much without misuse: a call that never
// returns may be interrupted between two stores (types.h; push_front in block_list.h).
inline constexpr std::int32_t count_tolerance = 1;

// Blocks with a slab of their own (48 and 64 KiB): the bins of all heaps together keep about this
// many of each size.
inline constexpr std::uint32_t single_blocks_in_bins = 64;

// The share of one heap's bin at the moment.
std::uint32_t max_single_blocks() noexcept;

inline std::uint32_t max_bin_capacity(const HeapFront& heap, const SizeClass& c) noexcept {
  if (c.block_bytes > max_shared_bytes) [[unlikely]]
    return max_single_blocks();
  return heap.has_wide_bins ? c.wide_bin_blocks : c.bin_blocks;
}

// How many blocks the bin holds, as malloc and free count them. A longjmp out of a signal handler
// may leave a count that is too high or too low by one for each call that it cuts off; refills and
// flushes, whose lists are longer, store list and count in an order such that it is too low.
inline std::int32_t counted_blocks(const ThreadHeap& heap, unsigned size_class) noexcept {
  return heap.capacities[size_class] - heap.bins[size_class].capacity_left;
}

// How many blocks the class's sampling bin holds.
inline std::int32_t counted_in_sampling_bin(const ThreadHeap& heap, unsigned size_class) noexcept {
  return heap.sampling_capacities[size_class] - heap.sampling_bins[size_class].capacity_left;
}

// Gives a sampling bin a list of `count` blocks, and a capacity. The stores are ordered so that a
// longjmp out of a signal handler leaves a count that is too low.
inline void set_sampling_bin(ThreadHeap& heap, unsigned size_class, Block* first,
                             std::int32_t count, std::uint32_t capacity) noexcept {
  CacheBin& bin = heap.sampling_bins[size_class];
  bin.head = nullptr;
  std::atomic_signal_fence(std::memory_order_release);
  heap.sampling_capacities[size_class] = static_cast<std::uint16_t>(capacity);
  bin.capacity_left = static_cast<std::int32_t>(capacity);
  std::atomic_signal_fence(std::memory_order_release);
  bin.head = first;
  std::atomic_signal_fence(std::memory_order_release);
  bin.capacity_left = static_cast<std::int32_t>(capacity) - count;
}

// Changes a sampling bin's capacity, in the same order.
inline void set_sampling_capacity(ThreadHeap& heap, unsigned size_class,
                                  std::uint32_t capacity) noexcept {
  CacheBin& bin = heap.sampling_bins[size_class];
  const std::int32_t left =
      static_cast<std::int32_t>(capacity) - counted_in_sampling_bin(heap, size_class);
  if (capacity > heap.sampling_capacities[size_class]) bin.capacity_left = left;
  std::atomic_signal_fence(std::memory_order_release);
  heap.sampling_capacities[size_class] = static_cast<std::uint16_t>(capacity);
  std::atomic_signal_fence(std::memory_order_release);
  bin.capacity_left = left;
}

// Reports that a list of the class is damaged.
[[gnu::cold]] void report_damage(unsigned size_class, const void* where) noexcept;

// Bypasses or opens a bin that is empty, by its capacity and whether there are sampling bins. (A
// free in a signal handler may just have filled it.)
inline void bypass_or_open(ThreadHeap& heap, unsigned size_class) noexcept {
  CacheBin& bin = heap.bins[size_class];
  if (first_block(bin) != nullptr) [[unlikely]]
    return;
  const bool is_bypassed = heap.capacities[size_class] == 0 && !heap.has_sampling_bins;
  bin.head = is_bypassed ? bypassed_bin() : nullptr;
}
// To be called when the heap got its sampling bins, or lost them.
inline void bypass_or_open_all(ThreadHeap& heap) noexcept {
  for (unsigned c = 1; c < class_count; ++c) bypass_or_open(heap, c);
}

// Empties a bin by forgetting its list. Blocks that the caller does not keep are lost.
inline void drop_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  heap.bins[size_class].capacity_left = heap.capacities[size_class];
  std::atomic_signal_fence(std::memory_order_release);
  heap.bins[size_class].head = nullptr;
  bypass_or_open(heap, size_class);
}

// Reports a damaged list, and drops the bin that has it.
inline void drop_damaged_bin(ThreadHeap& heap, unsigned size_class, const void* where) noexcept {
  report_damage(size_class, where);
  drop_bin(heap, size_class);
}

// Changes the capacity of an empty bin. It is opened first and bypassed last, so that a signal
// handler never finds a bypassed bin that has capacity.
inline void set_capacity(ThreadHeap& heap, unsigned size_class, std::uint32_t capacity) noexcept {
  if (heap.bins[size_class].head == bypassed_bin()) heap.bins[size_class].head = nullptr;
  std::atomic_signal_fence(std::memory_order_release);
  if (capacity > heap.capacities[size_class])
    heap.bins[size_class].capacity_left = static_cast<std::int32_t>(capacity);
  std::atomic_signal_fence(std::memory_order_release);
  heap.capacities[size_class] = static_cast<std::uint16_t>(capacity);
  std::atomic_signal_fence(std::memory_order_release);
  heap.bins[size_class].capacity_left = static_cast<std::int32_t>(capacity);
  std::atomic_signal_fence(std::memory_order_release);
  if (capacity == 0) bypass_or_open(heap, size_class);
}

// Gives an empty bin its largest capacity, since the class takes fresh blocks.
inline void open_bin_wide(ThreadHeap& heap, unsigned size_class) noexcept {
  heap.sparse_slabs[size_class] = 0;
  set_capacity(heap, size_class, max_bin_capacity(heap, size_classes[size_class]));
}

// The smallest capacity of a bin after slabs of its class became sparse.
inline constexpr std::uint32_t min_narrow_capacity = 2;

// Reopens an empty bin without capacity: at full capacity, or at a small one if many slabs became
// sparse.
void reopen_bin(ThreadHeap& heap, unsigned size_class) noexcept;

// Raises the capacity of an empty bin that is about to be refilled: doubles it if it was reduced
// because slabs became sparse.
inline void widen_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  const std::uint32_t capacity = heap.capacities[size_class];
  if (capacity == 0) return reopen_bin(heap, size_class);
  if (heap.sparse_slabs[size_class] == 0) return;
  const std::uint32_t most = max_bin_capacity(heap, size_classes[size_class]);
  set_capacity(heap, size_class, 2 * capacity > most ? most : 2 * capacity);
}

// To be called when a slab of the class became sparse by the owner's frees. Once a quarter of the
// slabs are sparse, the bin holds one block per 32 of them, and at least two. So bins keep little
// once everything is freed.
void note_sparse_slab(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap);

// Whether the address is of a slab of the class.
inline bool is_of_class(const void* block, unsigned size_class) noexcept {
  return (entry_of(block) & class_mask) == size_class << class_shift;
}

// Fills an empty bin with a list of `count` blocks, all but the first, which the caller hands out.
inline void put_into_bin(ThreadHeap& heap, unsigned size_class, const Block* first,
                         std::uint32_t count) noexcept TS_REQUIRES(heap) {
  CacheBin& bin = heap.bins[size_class];
  bin.head = first->next;
  std::atomic_signal_fence(std::memory_order_release);  // counted_blocks
  bin.capacity_left = heap.capacities[size_class] - static_cast<std::int32_t>(count - 1);
}

// Returns the `count` blocks of a list, as a bin has counted them, to their slabs.
[[gnu::noinline]] void flush_list(ThreadHeap& heap, unsigned size_class, Block* block,
                                  std::int32_t count) noexcept TS_REQUIRES(heap);

// Returns the blocks of all spare lists of the class to their slabs (spare_lists.h).
[[gnu::noinline]] void flush_spare_lists(ThreadHeap& heap, unsigned size_class) noexcept
    TS_REQUIRES(heap);

// Returns all blocks of the class's bins and spare lists to their slabs.
void flush_bin(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap);

// To be called when a free found a bin full. True if it was one of many frees in a row, without a
// malloc of the class in between: then the list should be put aside, or the bin bypassed. (Always
// true for a sampling bin, and while the heap has spare lists.)
bool is_burst(ThreadHeap& heap, unsigned size_class, const CacheBin& full) noexcept;

// Returns all blocks of the bin to their slabs; it has no capacity until it is refilled. Used when
// the program frees many blocks in a row, whose lines are cold. As no bin then has blocks of the
// class, a block's bit alone detects a double free, and the block itself is not touched.
void bypass_bin(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap);

// Flushes everything that the heap caches (bins and batches), collects, and retires empty slabs.
void flush(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

// To be called when a free found a listed slab at its fast_free_threshold. The next threshold is
// sparse_limit, or 0 below that; for a long slab, at least the number of its blocks in bins. If
// these are the only used blocks, flushes the bins of the class instead: a few cached blocks must
// not keep much memory.
void move_fast_free_threshold(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// Flushes the sampling bins of a heap that no longer samples, and closes them.
[[gnu::cold]] void end_heap_sampling(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

// Recounts the bins, in the child of a fork that interrupted a thread between two stores.
void recount_bins(ThreadHeap& heap) noexcept;

}  // namespace ts::engine
