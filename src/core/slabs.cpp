#include "core/slabs.h"

#include "base/event_counts.h"
#include "core/page_heap.h"
#include "core/sparse_slabs.h"

namespace ts::engine {
namespace {

void set_entries(Span& slab, PageMapEntry entry) noexcept {
  MapPage* const pages = page_map.pages + first_page_of(&slab);
  const auto begin = static_cast<std::uint32_t>(address_of(memory_of(&slab)));
  for (std::uint32_t i = 0; i < slab.pages; ++i) {
    pages[i].slab_begin = begin;
    // relaxed: a pointer to a block of the slab reaches another thread by that thread's own
    // synchronisation, and the entry with it
    pages[i].entry.store(entry, std::memory_order_relaxed);
    (&slab + i)->purged = 0;
  }
}

[[gnu::noinline]] void queue_slab_of_arena(ThreadHeap& arena, Span& slab) noexcept
    TS_REQUIRES(arena) {
  queue_sparse_slab(arena, slab);
}

// The blocks of a slab that is empty lie side by side: this is faster than the walk along their
// list. Their marks are compared all at once, by their sum.
[[nodiscard]] bool take_marks_of_all(const Span& slab) noexcept {
  const std::size_t bytes = size_classes[slab.size_class].block_bytes;
  const std::size_t count = slab.carved;
  std::byte* const begin = memory_of(&slab);
  std::uintptr_t sum = 0;
  std::byte* at = begin;
  for (std::size_t left = count; left != 0; --left, at += bytes) {
    auto* const block = reinterpret_cast<Block*>(at);
    sum += block->mark;
    unmarked(block);
  }
  const std::uintptr_t step = mark_of(begin + bytes) - mark_of(begin);
  return sum == count * mark_of(begin) + step * (count * (count - 1) / 2);
}

// May end before the count: a longjmp out of a signal handler left it too high (types.h).
[[nodiscard]] bool take_marks_of_list(const Span& slab) noexcept {
  const std::uintptr_t begin = address_of(memory_of(&slab));
  Block* block = slab.free_list;
  for (std::uint32_t left = slab.free_blocks; block != nullptr && left != 0; --left) {
    if (address_of(block) - begin >= slab.pages * page_bytes || !is_marked(block)) [[unlikely]]
      return false;
    block = unmarked(block)->next;
  }
  return true;
}

// Takes the marks off a slab that is retired: a program may copy memory that it never wrote, and a
// mark with it back to the same block, which would then look free. Only blocks on the list have
// one. False if one of them has none. It was written to; or it is on the list a second time, after
// a double free that found the bin full (release_overflow), and another block is still in use.
[[nodiscard]] bool take_marks(const Span& slab) noexcept {
  // A slab with blocks on no list has fewer free ones: purged, or lost to a longjmp.
  return slab.free_blocks == slab.carved ? take_marks_of_all(slab) : take_marks_of_list(slab);
}

[[gnu::cold, gnu::noinline]] void report_damaged(const Span& slab) noexcept {
  report_misuse(Misuse::damaged_list, FoundBy::a_later_call, memory_of(&slab),
                size_classes[slab.size_class].block_bytes);
}

// A block is on the slab's list twice, and others may be in use: the memory is never used again.
[[gnu::cold, gnu::noinline]] void give_up(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap) {
  report_damaged(slab);
  if (is_listed(slab)) unlink_partial(heap, slab);
  if (is_queued(slab) && !is_arena(heap)) unqueue_sparse_slab(heap, slab);
  slab.free_list = nullptr;
}

void release_pages(Span& slab) noexcept {
  if constexpr (counting) count_event(Event::slabs_released);
  set_entries(slab, 0);
  page_heap.release(&slab);
}

void retire(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap) {
  if (!take_marks(slab)) [[unlikely]]
    return give_up(heap, slab);
  take_slab_out(heap, slab);
  release_pages(slab);
}

}  // namespace

void link_partial(ThreadHeap& heap, Span& slab) noexcept {
  Plain<Span*>& head = heap.partial[slab.size_class];
  Span* const first = head;
  slab.previous = &slab;
  if (first != nullptr) {
    slab.previous = first->previous;
    first->previous = &slab;
  }
  slab.next = first;
  head = &slab;
  set_fast_free_threshold(slab);
}

void unlink_partial(ThreadHeap& heap, Span& slab) noexcept {
  check(is_listed(slab), "a slab leaves the list that it is in", &slab);
  Span* const first = heap.partial[slab.size_class];
  Plain<Span*>& link_to_it = first == &slab ? heap.partial[slab.size_class] : slab.previous->next;
  Plain<Span*>& link_back = slab.next != nullptr ? slab.next->previous : first->previous;
  check(link_to_it == &slab && link_back == &slab, "listed slabs are linked in both directions",
        &slab);
  link_back = slab.previous;
  link_to_it = slab.next;
  slab.fast_free_threshold = unlisted;
}

void move_behind_others(ThreadHeap& heap, Span& slab) noexcept {
  unlink_partial(heap, slab);
  Plain<Span*>& head = heap.partial[slab.size_class];
  if (head == nullptr) return link_partial(heap, slab);
  slab.previous = head->previous;
  slab.next = nullptr;
  slab.previous->next = &slab;
  head->previous = &slab;
  set_fast_free_threshold(slab);
}

void take_slab_out(ThreadHeap& heap, Span& slab) noexcept {
  if (is_listed(slab)) unlink_partial(heap, slab);
  if (is_queued(slab)) unqueue_sparse_slab(heap, slab);
  check(heap.slabs[slab.size_class] != 0, "a heap counts its slabs", &slab);
  --heap.slabs[slab.size_class];
}

void retire_slab(Span& slab) noexcept {
  if (take_marks(slab)) [[likely]]
    return release_pages(slab);
  report_damaged(slab);
  set_entries(slab, 0);  // the memory is never used again
}

void add_slab(ThreadHeap& heap, Span& span) noexcept {
  if constexpr (counting) count_event(Event::slabs_created);
  span.free_list = nullptr;
  set_carved(span, 0);
  span.free_blocks = 0;
  span.purged_blocks = 0;
  set_entries(span, entry_of_heap(heap) | PageMapEntry{span.size_class} << class_shift);
  link_partial(heap, span);
  ++heap.slabs[span.size_class];
  if (is_arena(heap)) [[unlikely]]
    queue_slab_of_arena(heap, span);
}

bool relist_or_retire(ThreadHeap& heap, Span& slab) noexcept {
  // A count may come without a block, if an earlier collect() found the bit before it was counted.
  if (!is_listed(slab) && slab.free_list != nullptr) link_partial(heap, slab);
  if (used(slab) != 0) {
    if (is_sparse(slab) && !is_queued(slab) && page_map.pages_per_os_page == 1)
      queue_sparse_slab(heap, slab);
    return true;
  }
  const bool is_only_one = slab.next == nullptr && slab.previous == &slab;
  if (is_only_one && slab.pages <= size_classes[slab.size_class].first_slab_pages) return true;
  if (slab.free_blocks + slab.purged_blocks > slab.carved) [[unlikely]] {
    give_up(heap, slab);
    return false;
  }
  retire(heap, slab);
  return false;
}

void retire_empty_slabs(ThreadHeap& heap) noexcept {
  for (Span* head : heap.partial) {
    for (Span* slab = head; slab != nullptr;) {
      Span* const next = slab->next;
      if (used(*slab) == 0) retire(heap, *slab);
      slab = next;
    }
  }
}

}  // namespace ts::engine
