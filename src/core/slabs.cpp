#include "core/slabs.h"

#include <bit>

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
    // relaxed: a pointer to a block of the slab reaches another thread through the program's own
    // synchronisation, and the entry with it
    pages[i].entry.store(entry, std::memory_order_relaxed);
    (&slab + i)->purged = 0;
  }
}

[[gnu::noinline]] void queue_slab_of_arena(ThreadHeap& arena, Span& slab) noexcept
    TS_REQUIRES(arena) {
  queue_sparse_slab(arena, slab);
}

// Clears the keys of a slab that is retired: a program may copy memory that it never wrote, and
// with it a key to the same block, which would then seem to be free. Most slabs whose blocks are
// freed in one burst have no keys.
void clear_keys(Span& slab) noexcept {
  if (!slab.has_keys) return;
  const bool has_purged = slab.purged_blocks != 0;
  const std::size_t bytes = size_classes[slab.size_class].block_bytes;
  std::byte* at = memory_of(&slab);
  for (std::uint32_t left = slab.carved; left != 0; --left, at += bytes) {
    if (has_purged && is_purged(slab, slab.carved - left)) [[unlikely]]
      continue;
    clear_key(reinterpret_cast<Block*>(at));
  }
}

}  // namespace

void set_keyless(Span& slab, bool is_keyless) noexcept {
  MapPage* const pages = page_map.pages + first_page_of(&slab);
  // relaxed: as in set_entries()
  const PageMapEntry entry = pages->entry.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < slab.pages; ++i)
    pages[i].entry.store(is_keyless ? entry | keyless_bit : entry & ~keyless_bit,
                         std::memory_order_relaxed);
}

void set_keys(Span& slab) noexcept {
  const std::size_t bytes = size_classes[slab.size_class].block_bytes;
  slab.has_keys = true;
  for (std::uint32_t first = 0; first < slab.carved; first += 64) {
    std::uint64_t bits = free_word(slab, first / 64) & lowest_bits(slab.carved - first);
    for (; bits != 0; bits &= bits - 1)
      set_key(memory_of(&slab) + (first + static_cast<unsigned>(std::countr_zero(bits))) * bytes);
  }
  set_keyless(slab, false);
}

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
  use_of(slab).fast_free_threshold = unlisted;
}

void move_to_end(ThreadHeap& heap, Span& slab) noexcept {
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
  if constexpr (counting) count_event(Event::slabs_released);
  clear_keys(slab);
  set_entries(slab, 0);
  page_heap.release(&slab);
}

namespace {

void retire(ThreadHeap& heap, Span& slab) noexcept TS_REQUIRES(heap) {
  take_slab_out(heap, slab);
  retire_slab(slab);
}

}  // namespace

void add_slab(ThreadHeap& heap, Span& span) noexcept {
  if constexpr (counting) count_event(Event::slabs_created);
  use_of(span).used.store(0, std::memory_order_relaxed);
  span.carved = 0;
  span.purged_blocks = 0;
  reset_keys(span);
  for (std::uint32_t first = 0; first < span.slab_blocks; first += 64)
    free_word_of(span, first / 64)
        .store(lowest_bits(span.slab_blocks - first), std::memory_order_relaxed);
  set_entries(span, entry_of_heap(heap) | PageMapEntry{span.size_class} << class_shift);
  link_partial(heap, span);
  ++heap.slabs[span.size_class];
  if (is_arena(heap)) [[unlikely]]
    queue_slab_of_arena(heap, span);
}

bool relist_or_retire(ThreadHeap& heap, Span& slab) noexcept {
  // A count may come without a block, if an earlier collect() found the bit before it was counted.
  if (!is_listed(slab) && has_free_block(slab)) link_partial(heap, slab);
  if (used(slab) != 0) {
    if (is_sparse(slab) && !is_queued(slab) && page_map.pages_per_os_page == 1)
      queue_sparse_slab(heap, slab);
    return true;
  }
  const bool is_only_one = slab.next == nullptr && slab.previous == &slab;
  if (is_only_one && slab.size_class < first_single_class &&
      slab.pages <= size_classes[slab.size_class].first_slab_pages)
    return true;
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
