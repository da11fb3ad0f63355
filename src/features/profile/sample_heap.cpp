#include "features/profile/sample_heap.h"

#include "core/cache_bins.h"
#include "core/common_heap.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/large_blocks.h"
#include "core/misuse.h"
#include "core/remote_frees.h"
#include "core/slabs.h"
#include "features/profile/sampling_switch.h"

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
                     const os::UnwoundStack& stack, void* placeholder, double& weight,
                     SpanForHeap& span) noexcept {
  const Guard guard{samples_lock};
  if (begin_sample_heap() == nullptr) return nullptr;
  void* const p = allocate_from(*sample_heap, size_class, span);
  if (p == nullptr) return nullptr;
  weight =
      note_sample(p, bytes, size_classes[size_class].block_bytes, interval, stack, placeholder);
  if (weight != 0) {
    adapt_interval();
    return p;
  }
  const HeapHold hold{*sample_heap};
  push_to_slab(*sample_heap, p, place_of(p, size_classes[size_class]));
  return nullptr;
}

}  // namespace

void* allocate_sample(std::size_t bytes, unsigned size_class, std::uint64_t interval,
                      const void* caller, void* placeholder) noexcept {
  os::UnwoundStack stack;
  take_stack(stack, caller);
  double weight = 0;
  void* const p = SpanForHeap{size_class}.serve([&](SpanForHeap& span) {
    return allocate_noted(bytes, size_class, interval, stack, placeholder, weight, span);
  });
  if (p != nullptr) trace_alloc(p, bytes, weight);
  return p;
}

[[gnu::cold]] bool hooks::release_sampled(void* p, PageMapEntry entry) noexcept {
  if (!is_of_sample(entry)) return false;
  const BlockPlace place = place_of(p, size_class_of(entry));
  if (!place.is_beginning || has_key(p) || is_free(place)) {
    report_invalid_pointer(p, FoundBy::free);
    return true;
  }
  forget_sample(p);
  release_remote_at_once(place, FoundBy::free);
  return true;
}

void flush_sample_heap() noexcept {
  const Guard guard{samples_lock};
  if (sample_heap == nullptr) return;
  const HeapHold hold{*sample_heap};
  flush(*sample_heap);
}

// Checks that each block kept as a sample is in use, and marked as a sample.
Fault hooks::find_fault(std::uint64_t large_samples) noexcept {
  const Guard guard{samples_lock};
  for (std::uint32_t i = 0; i < samples.in_use.count; ++i) {
    const void* const block = samples.in_use.items[i].block;
    const PageMapEntry entry = entry_of(block);
    if (entry == large_entry && is_large_sample(page_map.spans[page_of(block)])) {
      --large_samples;
    } else if (entry < arena_bit || !is_of_sample(entry) || has_key(block)) {
      return {"a sample is a block in use", block};
    }
  }
  if (large_samples != 0) return {"each large block with the mark is a sample", nullptr};
  return {};
}

}  // namespace ts::engine
