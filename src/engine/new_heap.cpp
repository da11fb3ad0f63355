#include "engine/new_heap.h"

#include "engine/inspection.h"
#include "engine/page_heap.h"
#include "engine/sampling_switch.h"

namespace ts::engine {
namespace {

// A program that forgets arenas leaves numbers of heaps for its threads.
constexpr std::uint32_t last_number_of_arenas = AddressRange::max_heaps / 8 * 7;

}  // namespace

// Without a hold: no other thread accesses the heap before it owns a slab.
ThreadHeap* new_heap(PageMapEntry kind) noexcept TS_NO_ANALYSIS {
  leave_inspection_note();
  const std::uint32_t heaps = page_map.heap_count.load(std::memory_order_relaxed);
  if (kind != 0 && heaps >= last_number_of_arenas) return nullptr;
  const std::uint32_t number = page_heap.new_heap();
  if (number == 0) return nullptr;
  ThreadHeap* const heap = heap_of(number << heap_shift);
  heap->has_wide_bins = number <= max_heaps_with_wide_bins;
  heap->self.store(number << heap_shift | kind, std::memory_order_relaxed);
  for (unsigned c = 1; c < class_count; ++c) heap->bins[c].reciprocal = size_classes[c].reciprocal;
  if (kind == 0) begin_heap_sampling(*heap);
  return heap;
}

}  // namespace ts::engine
