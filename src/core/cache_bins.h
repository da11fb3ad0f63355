// The cache bins of a heap: their counts, and how they are flushed into slabs. The owner, or a
// thread that took over an abandoned heap, calls these and holds the heap.
#pragma once

#include <algorithm>

#include "core/heap_hold.h"
#include "core/page_map.h"

namespace ts::engine {

// Lengths of lists and their counts may differ by this much without misuse. A call that never
// returns is cut off between two stores (types.h; block_list.h, push_front).
inline constexpr std::int32_t count_tolerance = 1;

// Blocks with a slab to themselves (48 and 64 KiB): all heaps together keep about so many of each
// size in their bins.
inline constexpr std::uint32_t single_blocks_in_bins = 64;

// So many a bin of one heap, now.
std::uint32_t max_single_blocks() noexcept;

inline std::uint32_t max_bin_capacity(const HeapFront& heap, const SizeClass& c) noexcept {
  if (c.block_bytes > max_shared_bytes) [[unlikely]]
    return max_single_blocks();
  return heap.has_wide_bins ? c.wide_bin_blocks : c.bin_blocks;
}

// How many blocks the bin holds, by the count of malloc and free. List and count are set in an
// order by which a longjmp out of a signal handler leaves a count that is too low.
inline std::int32_t counted_blocks(const ThreadHeap& heap, unsigned size_class) noexcept {
  return heap.capacities[size_class] - heap.bins[size_class].capacity_left;
}

// The same of its sampling bin.
inline std::int32_t counted_in_sampling_bin(const ThreadHeap& heap, unsigned size_class) noexcept {
  return heap.sampling_capacities[size_class] - heap.sampling_bins[size_class].capacity_left;
}

// Gives a sampling bin a list of so many blocks, and a capacity. By the order of its stores, a
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

// Gives a sampling bin another capacity, in such an order, too.
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

// Reports a damaged list of the class.
[[gnu::cold]] void report_damage(unsigned size_class, const void* where) noexcept;

// To be called when an empty bin got its capacity, or the heap got or lost its sampling bins.
inline void set_head_of_empty(ThreadHeap& heap, unsigned size_class) noexcept {
  const bool is_bypassed = heap.capacities[size_class] == 0 && !heap.has_sampling_bins;
  heap.bins[size_class].head = is_bypassed ? bypassed_bin() : nullptr;
}

// Empties a bin without its list, whose blocks are lost.
inline void drop_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  heap.bins[size_class].capacity_left = heap.capacities[size_class];
  std::atomic_signal_fence(std::memory_order_release);
  set_head_of_empty(heap, size_class);
}

// Reports a damaged list, and drops the bin that has it.
inline void drop_damaged_bin(ThreadHeap& heap, unsigned size_class, const void* where) noexcept {
  report_damage(size_class, where);
  drop_bin(heap, size_class);
}

// Gives an empty bin another capacity. It is closed last, and opened first: a signal handler finds
// a bypassed bin without capacity.
inline void set_capacity(ThreadHeap& heap, unsigned size_class, std::uint32_t capacity) noexcept {
  heap.bins[size_class].head = nullptr;
  std::atomic_signal_fence(std::memory_order_release);
  if (capacity > heap.capacities[size_class])
    heap.bins[size_class].capacity_left = static_cast<std::int32_t>(capacity);
  std::atomic_signal_fence(std::memory_order_release);
  heap.capacities[size_class] = static_cast<std::uint16_t>(capacity);
  std::atomic_signal_fence(std::memory_order_release);
  heap.bins[size_class].capacity_left = static_cast<std::int32_t>(capacity);
  std::atomic_signal_fence(std::memory_order_release);
  if (capacity == 0) set_head_of_empty(heap, size_class);
}

// Gives an empty bin its largest capacity: the class takes fresh blocks.
inline void open_bin_wide(ThreadHeap& heap, unsigned size_class) noexcept {
  heap.sparse_slabs[size_class] = 0;
  set_capacity(heap, size_class, max_bin_capacity(heap, size_classes[size_class]));
}

// Once slabs of a class became sparse, its bin holds so few blocks at least.
inline constexpr std::uint32_t min_narrow_capacity = 2;

// Gives an empty bin without capacity the most, or little where many slabs became sparse.
void reopen_bin(ThreadHeap& heap, unsigned size_class) noexcept;

// Raises the capacity of an empty bin that is about to be refilled: to twice what it was where
// slabs became sparse.
inline void widen_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  const std::uint32_t capacity = heap.capacities[size_class];
  if (capacity == 0) return reopen_bin(heap, size_class);
  if (heap.sparse_slabs[size_class] == 0) return;
  const std::uint32_t most = max_bin_capacity(heap, size_classes[size_class]);
  set_capacity(heap, size_class, 2 * capacity > most ? most : 2 * capacity);
}

// To be called when a slab of the class became sparse by the owner's frees. Once a quarter of the
// slabs did, the bin holds a block for each 32 of them, and two at least. So when all is freed,
// bins keep little.
void note_sparse_slab(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap);

// Sends all blocks of the class's bins back to their slabs.
void flush_bin(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap);

// To be called when a free found a bin full. Whether it is one of many in a row, with no malloc of
// the class in between: then the bin is to be closed. (Of a sampling bin, always.)
bool is_burst(ThreadHeap& heap, unsigned size_class, const CacheBin& full) noexcept;

// Sends all blocks of the bin to their slabs; it has no capacity until it is refilled. The program
// frees many blocks in a row, whose lines are cold. Now no bin has blocks of the class, so a
// block's bit alone shows a double free, and the block itself is not touched.
void bypass_bin(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap);

// Flushes all that the heap caches: bins and batches; collects, and retires empty slabs.
void flush(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

// To be called when a free found a listed slab at its fast_free_threshold. The next one is
// sparse_limit, or below that 0; of a long slab, no less than the blocks that bins have of it.
// Where these are all that are used, flushes the bins of the class instead: a few cached blocks
// must not keep much memory.
void move_fast_free_threshold(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap);

// Flushes the sampling bins of a heap that samples no longer, and takes no blocks there.
[[gnu::cold]] void end_heap_sampling(ThreadHeap& heap) noexcept TS_REQUIRES(heap);

// Counts the bins anew, in the child of a fork that cut a thread off between two stores.
void recount_bins(ThreadHeap& heap) noexcept;

}  // namespace ts::engine
