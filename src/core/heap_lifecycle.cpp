#include "core/heap_lifecycle.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/event_counts.h"
#include "core/cache_bins.h"
#include "core/current_heap.h"
#include "core/deferred_work.h"
#include "core/heap_invariants.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "core/reclaim.h"
#include "core/remote_frees.h"
#include "core/slabs.h"
#include "os/os.h"

namespace ts::engine {

// ---- heaps that are given back ----

namespace {

// A bit for each heap that was given back: it is in no list and has no number, no block, and no
// capacity. Some of its memory may have been returned to the system, and reads as zero then.
constexpr std::size_t bits_of_word = 64;
constinit std::uint64_t given_back[AddressRange::max_heaps / bits_of_word + 1] TS_GUARDED_BY(
    abandoned_lock) = {};
constinit std::uint32_t given_back_count TS_GUARDED_BY(abandoned_lock) = 0;

bool is_given_back(std::uint32_t number) noexcept TS_REQUIRES(abandoned_lock) {
  return (given_back[number / bits_of_word] >> number % bits_of_word & 1) != 0;
}

// Takes the lowest-numbered such heap for reuse; 0 if there is none.
std::uint32_t take_given_back() noexcept {
  const Guard guard{abandoned_lock};
  if (given_back_count == 0) return 0;
  std::size_t i = 0;
  while (given_back[i] == 0) ++i;
  const auto number = static_cast<std::uint32_t>(i * bits_of_word) +
                      static_cast<unsigned>(std::countr_zero(given_back[i]));
  given_back[i] &= given_back[i] - 1;
  --given_back_count;
  return number;
}

// Whether a heap has no slab, so that no other thread can send it anything.
bool has_no_slab(const ThreadHeap& heap) noexcept TS_REQUIRES(heap) {
  return std::ranges::all_of(heap.slabs, [](std::uint32_t slabs) { return slabs == 0; });
}

// Gives back an abandoned heap without slabs, which was taken out of the queue.
void give_back(ThreadHeap& heap) noexcept TS_REQUIRES(abandoned_lock) TS_NO_ANALYSIS {
  const std::uint32_t number = heap_number(entry_of_heap(heap));
  // Whatever part of the structure is discarded, a bin must agree with its capacity.
  for (unsigned c = 1; c < class_count; ++c) {
    set_capacity(heap, c, 0);
    if (heap.has_sampling_bins) set_sampling_bin(heap, c, nullptr, 0, 0);
  }
  heap.is_abandoned.store(false, std::memory_order_relaxed);
  // relaxed: threads that still see the number find a heap without blocks
  heap.self.store(0, std::memory_order_relaxed);
  given_back[number / bits_of_word] |= std::uint64_t{1} << number % bits_of_word;
  ++given_back_count;
}

// Discards the OS pages that contain only such heaps. Under reclaim_lock: a reclaimer may have
// reached a heap before it was given back, and its hold must not be lost to the heap's next owner.
void discard_given_back() noexcept TS_REQUIRES(abandoned_lock, reclaim_lock) {
  const std::uint32_t count = page_map.heap_count.load(std::memory_order_relaxed);
  for (std::uint32_t first = 1; first <= count; ++first) {
    if (!is_given_back(first)) continue;
    std::uint32_t end = first + 1;
    while (end <= count && is_given_back(end)) ++end;
    os::discard_whole_pages(page_map.heaps + first, page_map.heaps + end);
    first = end;
  }
}

}  // namespace

// ---- new heaps ----

// Needs no hold: no other thread accesses the heap before it owns a slab.
ThreadHeap* new_heap(PageMapEntry kind, std::uint32_t spare) noexcept TS_NO_ANALYSIS {
  std::uint32_t number = take_given_back();
  if (number == 0) number = page_heap.new_heap(spare);
  if (number == 0) return nullptr;
  ThreadHeap* const heap = heap_of(number << heap_shift);
  heap->has_wide_bins = number <= max_heaps_with_wide_bins;
  for (unsigned c = 1; c < class_count; ++c) {
    heap->bins[c].reciprocal = size_classes[c].reciprocal;
    bypass_or_open(*heap, c);
  }
  // release: the child of a fork takes over heaps that have a number, and must find all of this
  // there
  heap->self.store(number << heap_shift | kind, std::memory_order_release);
  if (kind == 0) hooks::heap_begins(*heap);
  return heap;
}

// ---- threads that begin and end ----

namespace {

void thread_ends(void* argument) {
  auto& heap = *static_cast<ThreadHeap*>(argument);
  hooks::thread_is_ending();
  // What is left of this thread (other destructors, the C library's own cleanup) gets no heap: a
  // second one might never be abandoned.
  if (this_thread.heap == &heap) this_thread.heap = ended_heap;
  const std::uint32_t pages = [&heap] {
    const HeapHold hold{heap};
    return pages_of_slabs(heap);
  }();
  const bool keeps_bins = may_keep_bins(pages);
  {
    const HeapHold hold{heap};
    if (keeps_bins) {
      flush_batches(heap);
    } else {
      flush(heap);
    }
    if constexpr (debug_level >= 1) check_at_rest(heap);
  }
  {
    const Guard guard{abandoned_lock};
    abandon(heap, keeps_bins, pages);
  }
  if (has_ready(heap)) hooks::frees_stay_uncollected(pages);  // not noted if it still had a thread
  send_purges_if_any();
  hooks::thread_ended();
}

}  // namespace

ThreadHeap* attach_heap() noexcept {
  ThreadHeap* heap = adopt_abandoned();
  const bool is_adopted = heap != nullptr;
  if (!is_adopted) heap = new_heap();
  if (heap == nullptr) return nullptr;
  if constexpr (counting) count_event(is_adopted ? Event::adopted_heaps : Event::heaps_created);
  if constexpr (debug_level >= 1) {
    const HeapHold hold{*heap};
    check_at_rest(*heap);
  }
  hooks::thread_begins();
  // Before the registration, which may allocate.
  this_thread.heap = heap;
  if (os::call_at_thread_exit(thread_ends, heap)) return heap;
  thread_ends(heap);
  return nullptr;
}

// ---- abandoned heaps ----

namespace {

// A queue. Heaps are abandoned to its front and adopted from there; collect_abandoned() moves the
// first one to the end. While it collects, that heap is out of the queue but still marked as
// abandoned, and the thread holds collection_lock but not abandoned_lock, so that threads can begin
// and end. Invariant: the queue links all heaps that are marked as abandoned; kept_pages is the sum
// over heaps that keep their bins; any_abandoned is true if and only if the queue is not empty.
constinit Plain<ThreadHeap*> first_abandoned TS_GUARDED_BY(abandoned_lock) = nullptr;
constinit Plain<ThreadHeap*> last_abandoned TS_GUARDED_BY(abandoned_lock) = nullptr;
constinit Plain<std::size_t> kept_pages TS_GUARDED_BY(abandoned_lock) = 0;

constexpr std::size_t max_kept_pages = (std::size_t{16} << 20) / page_bytes;

// At most, in one call.
constexpr std::size_t purged_slabs = 16;

void recount_if_from_fork(ThreadHeap& heap) noexcept {
  if (heap.recounts) recount_bins(heap);
  heap.recounts = false;
}

// Takes the heap after `before`, or the first one, out of the queue; null if there is none.
ThreadHeap* take_out_of_queue(ThreadHeap* before) noexcept TS_REQUIRES(abandoned_lock) {
  Plain<ThreadHeap*>& link = before == nullptr ? first_abandoned : before->next_abandoned;
  ThreadHeap* const heap = link;
  if (heap == nullptr) return nullptr;
  link = heap->next_abandoned;
  if (last_abandoned == heap) last_abandoned = before;
  if (heap->keeps_bins) kept_pages -= heap->kept_pages;
  return heap;
}

void count_in(const ThreadHeap& heap) noexcept TS_REQUIRES(abandoned_lock) {
  any_abandoned.store(true, std::memory_order_relaxed);
  if (heap.keeps_bins) kept_pages += heap.kept_pages;
}

// Puts a heap back at the end of the queue.
void put_last(ThreadHeap& heap) noexcept TS_REQUIRES(abandoned_lock) {
  count_in(heap);
  heap.next_abandoned = nullptr;
  (last_abandoned != nullptr ? last_abandoned->next_abandoned : first_abandoned) = &heap;
  last_abandoned = &heap;
}

// Returns whether the heap has no slabs left.
bool collect_from(ThreadHeap& heap) noexcept {
  const HeapHold hold{heap};
  if (heap.keeps_bins) {
    heap.keeps_bins = false;
    recount_if_from_fork(heap);
    flush(heap);
  } else if (collect(heap)) {
    retire_empty_slabs(heap);
  }
  return has_no_slab(heap);
}

// Takes the first heap with sparse slabs out of the queue, no longer abandoned, as if a thread had
// adopted it; null if there is none.
ThreadHeap* take_out_with_sparse_slabs() noexcept {
  const Guard guard{abandoned_lock};
  ThreadHeap* before = nullptr;
  for (ThreadHeap* heap = first_abandoned; heap != nullptr;
       before = heap, heap = heap->next_abandoned) {
    {
      const HeapHold hold{*heap};
      if (heap->first_sparse == 0) continue;
    }
    take_out_of_queue(before);
    if (first_abandoned == nullptr) any_abandoned.store(false, std::memory_order_relaxed);
    heap->is_abandoned.store(false, std::memory_order_relaxed);
    return heap;
  }
  return nullptr;
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
  heap.is_abandoned.store(true, std::memory_order_relaxed);
  heap.keeps_bins = keeps_bins;
  heap.kept_pages = pages;
  count_in(heap);
  heap.next_abandoned = first_abandoned;
  if (first_abandoned == nullptr) last_abandoned = &heap;
  first_abandoned = &heap;
}

ThreadHeap* adopt_abandoned() noexcept {
  ThreadHeap* heap = nullptr;
  {
    const Guard guard{abandoned_lock};
    heap = take_out_of_queue(nullptr);
    if (heap == nullptr) return nullptr;
    if (first_abandoned == nullptr) any_abandoned.store(false, std::memory_order_relaxed);
    heap->is_abandoned.store(false, std::memory_order_relaxed);
  }
  heap->keeps_bins = false;
  recount_if_from_fork(*heap);
  return heap;
}

bool collect_from_queue(std::size_t at_most) noexcept {
  if (at_most == SIZE_MAX) {
    collection_lock.lock();
  } else if (!collection_lock.try_lock()) {
    return false;
  }
  abandoned_lock.lock();
  const bool is_any = first_abandoned != nullptr;
  const ThreadHeap* const end = last_abandoned;
  bool is_any_given_back = false;
  // Threads may adopt `end` meanwhile; then the number of heaps ends the loop.
  std::size_t left =
      std::min<std::size_t>(at_most, page_map.heap_count.load(std::memory_order_relaxed));
  for (bool is_end = false; left != 0 && !is_end; --left) {
    ThreadHeap* const heap = take_out_of_queue(nullptr);
    if (heap == nullptr) break;
    is_end = heap == end;
    abandoned_lock.unlock();
    const bool is_empty = collect_from(*heap);
    abandoned_lock.lock();
    if (at_most == SIZE_MAX && is_empty) {
      give_back(*heap);
      is_any_given_back = true;
    } else {
      put_last(*heap);
    }
  }
  if (first_abandoned == nullptr) any_abandoned.store(false, std::memory_order_relaxed);
  if (is_any_given_back) {
    const Guard no_reclaim{reclaim_lock};
    discard_given_back();
  }
  abandoned_lock.unlock();
  collection_lock.unlock();
  return is_any;
}

// Returns memory to the system, hence without a lock: the child of a fork finds the heap without an
// owner, and abandons it.
bool purge_abandoned(Mutex* lock) noexcept {
  ThreadHeap* const heap = take_out_with_sparse_slabs();
  if (heap == nullptr) return false;
  hooks::purge_sparse_slabs(*heap, purged_slabs, lock);
  const std::uint32_t pages = pages_of_slabs(*heap);
  {
    const Guard guard{abandoned_lock};
    heap->is_abandoned.store(true, std::memory_order_relaxed);
    put_last(*heap);
  }
  // Frees that arrived meanwhile were not noted.
  if (has_ready(*heap)) hooks::frees_stay_uncollected(pages);
  send_purges_if_any();
  return true;
}

Fault find_abandoned_fault() noexcept {
  const Guard guard{abandoned_lock};
  std::size_t pages = 0;
  std::size_t marked = 0;
  for_each_heap([&](ThreadHeap& heap) { marked += is_abandoned(heap) ? 1 : 0; });
  const ThreadHeap* before = nullptr;
  for (const ThreadHeap* heap = first_abandoned; heap != nullptr;
       before = heap, heap = heap->next_abandoned) {
    if (!is_abandoned(*heap) || marked == 0)
      return {"the queue has each heap that is marked as abandoned, once", heap};
    --marked;
    if (heap->keeps_bins) pages += heap->kept_pages;
  }
  if (marked != 0 || before != last_abandoned)
    return {"the queue has each heap that is marked as abandoned, once", last_abandoned};
  if (pages != kept_pages) return {"pages that abandoned heaps keep are counted", nullptr};
  if (any_abandoned.load(std::memory_order_relaxed) != (first_abandoned != nullptr))
    return {"the mark says whether a heap is abandoned", nullptr};
  return {};
}

}  // namespace ts::engine
