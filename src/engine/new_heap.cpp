#include "engine/new_heap.h"

#include "engine/inspection.h"
#include "engine/page_heap.h"
#include "engine/sampling_switch.h"

namespace ts::engine {
// Without a hold: no other thread accesses the heap before it owns a slab.
ThreadHeap* new_heap(PageMapEntry kind, std::uint32_t spare) noexcept TS_NO_ANALYSIS {
  leave_inspection_note();
  const std::uint32_t number = page_heap.new_heap(spare);
  if (number == 0) return nullptr;
  ThreadHeap* const heap = heap_of(number << heap_shift);
  heap->has_wide_bins = number <= max_heaps_with_wide_bins;
  for (unsigned c = 1; c < class_count; ++c) heap->bins[c].reciprocal = size_classes[c].reciprocal;
  // release: the child of a fork takes heaps with a number over, and finds all of this there
  heap->self.store(number << heap_shift | kind, std::memory_order_release);
  if (kind == 0) begin_heap_sampling(*heap);
  return heap;
}

}  // namespace ts::engine
