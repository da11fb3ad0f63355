#include "engine/sample_heap.h"

#include "engine/cache_bins.h"
#include "engine/common_heap.h"
#include "engine/misuse.h"
#include "engine/new_heap.h"
#include "engine/remote_frees.h"
#include "engine/sampling_switch.h"
#include "engine/slabs.h"

namespace ts::engine {
namespace {

constinit ThreadHeap* sample_heap TS_GUARDED_BY(samples_lock) = nullptr;

ThreadHeap* begin_sample_heap() noexcept TS_REQUIRES(samples_lock) {
  if (sample_heap != nullptr) return sample_heap;
  sample_heap = new_heap(arena_bit);
  if (sample_heap != nullptr)
    sample_heap_entry.store(entry_of_heap(*sample_heap), std::memory_order_relaxed);
  return sample_heap;
}

void* allocate_noted(std::size_t bytes, unsigned size_class, std::uint64_t interval,
                     const os::UnwoundStack& stack, void* proxy, double& weight,
                     SpanForHeap& span) noexcept {
  const Guard guard{samples_lock};
  if (begin_sample_heap() == nullptr) return nullptr;
  void* const p = allocate_from(*sample_heap, size_class, span);
  if (p == nullptr) return nullptr;
  weight = note_sample(p, bytes, size_classes[size_class].block_bytes, interval, stack, proxy);
  if (weight != 0) {
    adapt_interval();
    return p;
  }
  const HeapHold hold{*sample_heap};
  push_to_slab(*sample_heap, *slab_of(p), static_cast<Block*>(p));
  return nullptr;
}

}  // namespace

void* allocate_sample(std::size_t bytes, unsigned size_class, std::uint64_t interval,
                      const void* caller, void* proxy) noexcept {
  os::UnwoundStack stack;
  take_stack(stack, caller);
  double weight = 0;
  void* const p = SpanForHeap{size_class}.serve([&](SpanForHeap& span) {
    return allocate_noted(bytes, size_class, interval, stack, proxy, weight, span);
  });
  if (p != nullptr) trace_alloc(p, bytes, weight);
  return p;
}

void release_sample(void* p) noexcept {
  const BlockPlace place = place_of(p, size_class_of(entry_of(p)));
  if (!place.is_beginning || is_marked(p)) return static_cast<void>(report_stray(p, FoundBy::free));
  forget_sample(p);
  release_remote_at_once(place, FoundBy::free);
}

void flush_sample_heap() noexcept {
  const Guard guard{samples_lock};
  if (sample_heap == nullptr) return;
  const HeapHold hold{*sample_heap};
  flush(*sample_heap);
}

}  // namespace ts::engine
