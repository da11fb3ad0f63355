#include "engine/abandoned.h"

#include "base/check.h"
#include "engine/cache_bins.h"
#include "engine/remote_frees.h"
#include "engine/slabs.h"
#include "engine/tending.h"

namespace ts::engine {
namespace {

// A queue: threads adopt the first heap, and collect_abandoned() puts the first one last.
// Invariant: the heaps are linked from first to last, each marked as abandoned. Their kept_pages is
// the sum over heaps that keep their bins. any_abandoned is true if and only if there is a first.
constinit Plain<ThreadHeap*> first TS_GUARDED_BY(abandoned_lock) = nullptr;
constinit Plain<ThreadHeap*> last TS_GUARDED_BY(abandoned_lock) = nullptr;
constinit Plain<std::size_t> kept_pages TS_GUARDED_BY(abandoned_lock) = 0;

constexpr std::size_t max_kept_pages = (std::size_t{16} << 20) / page_bytes;

// Under the lock, in one call.
constexpr std::size_t purged_slabs = 16;

// To be called when the heap's bins are flushed, or adopted.
void forget_kept_bins(ThreadHeap& heap) noexcept TS_REQUIRES(abandoned_lock) {
  if (heap.keeps_bins) kept_pages -= heap.kept_pages;
  heap.keeps_bins = false;
}

void recount_if_from_fork(ThreadHeap& heap) noexcept {
  if (heap.recounts) recount_bins(heap);
  heap.recounts = false;
}

ThreadHeap* pop_first() noexcept TS_REQUIRES(abandoned_lock) {
  ThreadHeap* const heap = first;
  if (heap == nullptr) return nullptr;
  first = heap->next_abandoned;
  if (first == nullptr) {
    last = nullptr;
    any_abandoned.store(false, std::memory_order_relaxed);
  }
  heap->is_abandoned.store(false, std::memory_order_relaxed);
  forget_kept_bins(*heap);
  return heap;
}

void put_first_last() noexcept TS_REQUIRES(abandoned_lock) {
  if (first == last) return;
  ThreadHeap* const moved = first;
  first = moved->next_abandoned;
  moved->next_abandoned = nullptr;
  last->next_abandoned = moved;
  last = moved;
}

}  // namespace

std::uint32_t pages_of_slabs(const ThreadHeap& heap) noexcept {
  std::uint32_t pages = 0;
  for (unsigned c = 1; c < class_count; ++c) pages += heap.slabs[c] * size_classes[c].slab_pages;
  return pages;
}

bool may_keep_bins(std::uint32_t pages) noexcept {
  const Guard guard{abandoned_lock};
  return kept_pages + pages <= max_kept_pages;
}

void abandon(ThreadHeap& heap, bool keeps_bins, std::uint32_t pages) noexcept {
  check(!is_abandoned(heap), "a heap is abandoned once", &heap);
  any_abandoned.store(true, std::memory_order_relaxed);
  heap.is_abandoned.store(true, std::memory_order_relaxed);
  heap.keeps_bins = keeps_bins;
  heap.kept_pages = pages;
  if (keeps_bins) kept_pages += pages;
  heap.next_abandoned = first;
  if (first == nullptr) last = &heap;
  first = &heap;
}

ThreadHeap* adopt_abandoned() noexcept {
  ThreadHeap* heap = nullptr;
  {
    const Guard guard{abandoned_lock};
    heap = pop_first();
  }
  if (heap != nullptr) recount_if_from_fork(*heap);
  return heap;
}

bool collect_from_queue(std::size_t at_most) noexcept {
  const Guard guard{abandoned_lock};
  for (ThreadHeap* const end = last; first != nullptr && at_most != 0; --at_most) {
    ThreadHeap& heap = *first;
    {
      const HeapHold hold{heap};
      if (heap.keeps_bins) {
        forget_kept_bins(heap);
        recount_if_from_fork(heap);
        flush(heap);
      } else if (collect(heap)) {
        retire_empty_slabs(heap);
      }
    }
    put_first_last();
    if (&heap == end) break;
  }
  return true;
}

bool purge_abandoned() noexcept {
  const Guard guard{abandoned_lock};
  for (ThreadHeap* heap = first; heap != nullptr; heap = heap->next_abandoned) {
    const HeapHold hold{*heap};
    if (heap->first_low == 0) continue;
    purge_low_slabs(*heap, purged_slabs);
    return true;
  }
  return false;
}

Fault find_abandoned_fault() noexcept {
  const Guard guard{abandoned_lock};
  std::size_t pages = 0;
  std::size_t marked = 0;
  for_each_heap([&](ThreadHeap& heap) { marked += is_abandoned(heap) ? 1 : 0; });
  const ThreadHeap* before = nullptr;
  for (const ThreadHeap* heap = first; heap != nullptr;
       before = heap, heap = heap->next_abandoned) {
    if (!is_abandoned(*heap) || marked == 0)
      return {"the queue has each heap that is marked as abandoned, once", heap};
    --marked;
    if (heap->keeps_bins) pages += heap->kept_pages;
  }
  if (marked != 0 || before != last)
    return {"the queue has each heap that is marked as abandoned, once", last};
  if (pages != kept_pages) return {"pages that abandoned heaps keep are counted", nullptr};
  if (any_abandoned.load(std::memory_order_relaxed) != (first != nullptr))
    return {"the mark says whether a heap is abandoned", nullptr};
  return {};
}

}  // namespace ts::engine
