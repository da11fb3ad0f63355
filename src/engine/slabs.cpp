#include "engine/slabs.h"

#include "base/event_counts.h"
#include "engine/page_heap.h"

namespace ts::engine {
namespace {

void list(ThreadHeap& heap, Span& slab) noexcept {
  Span*& head = heap.partial[slab.size_class];
  slab.previous = nullptr;
  slab.next = head;
  if (head != nullptr) head->previous = &slab;
  head = &slab;
  slab.listed = true;
}

void set_entries(Span& slab, Entry entry) noexcept {
  std::atomic<Entry>* const entries = layout.map + number_of(&slab);
  for (std::uint32_t i = 0; i < slab.granules; ++i) {
    entries[i].store(entry, std::memory_order_relaxed);
    (&slab + i)->back = i;
  }
}

void release_slab(ThreadHeap& heap, Span& slab) noexcept {
  take_slab_out(heap, slab);
  give_slab_back(slab);
}

}  // namespace

void unlist(ThreadHeap& heap, Span& slab) noexcept {
  if (slab.next != nullptr) slab.next->previous = slab.previous;
  (slab.previous != nullptr ? slab.previous->next : heap.partial[slab.size_class]) = slab.next;
  slab.listed = false;
}

void take_slab_out(ThreadHeap& heap, Span& slab) noexcept {
  if (slab.listed) unlist(heap, slab);
  --heap.slabs[slab.size_class];
}

void give_slab_back(Span& slab) noexcept {
  if constexpr (counting) count_event(Event::slabs_released);
  set_entries(slab, 0);
  page_heap.release(&slab);
}

void add_slab(ThreadHeap& heap, Span& span) noexcept {
  if constexpr (counting) count_event(Event::slabs_created);
  span.blocks = nullptr;
  span.carved = 0;
  span.free_blocks = 0;
  set_entries(span, heap.self | Entry{span.size_class} << class_shift);
  list(heap, span);
  ++heap.slabs[span.size_class];
}

bool settle(ThreadHeap& heap, Span& slab) noexcept {
  // A count may come without a block, if an earlier drain found the bit before it was counted.
  if (!slab.listed && slab.blocks != nullptr) list(heap, slab);
  if (used(slab) != 0) return true;
  const bool is_only_one = slab.next == nullptr && slab.previous == nullptr;
  if (is_only_one && slab.granules <= size_classes[slab.size_class].first_slab_granules)
    return true;
  if (slab.free_blocks > slab.carved) [[unlikely]] {
    // Some are on its list twice, and others may be in use: nobody is to get its memory.
    report_misuse(Misuse::damaged_list, FoundBy::a_later_call, memory_of(&slab),
                  size_classes[slab.size_class].block_bytes);
    if (slab.listed) unlist(heap, slab);
    slab.blocks = nullptr;
    return false;
  }
  release_slab(heap, slab);
  return false;
}

void release_empty_slabs(ThreadHeap& heap) noexcept {
  for (Span* head : heap.partial) {
    for (Span* slab = head; slab != nullptr;) {
      Span* const next = slab->next;
      if (used(*slab) == 0) release_slab(heap, *slab);
      slab = next;
    }
  }
}

}  // namespace ts::engine
