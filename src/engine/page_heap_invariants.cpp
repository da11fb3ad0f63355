#include "engine/page_heap.h"

namespace ts::engine {

Fault PageHeap::find_fault() noexcept {
  const Guard guard{lock_};
  std::size_t dirty = 0;
  std::size_t clean = 0;
  std::size_t dense = 0;
  const Span* free_before = nullptr;
  std::size_t i = 0;
  while (i < top_) {
    const Span& span = page_map.spans[i];
    if (span.pages == 0 || span.pages > top_ - i) return {"spans tile the pages in use", &span};
    const Span& last = page_map.spans[i + span.pages - 1];
    const bool is_free = span.state == SpanState::free;
    if (is_free) {
      if (free_before != nullptr && free_before->zeroed == span.zeroed)
        return {"free neighbours of one kind are merged", &span};
      if (last.state != SpanState::free || last.pages != span.pages)
        return {"the last page of a free span agrees with the first", &span};
      for (std::size_t page = i; page < i + span.pages; ++page) {
        if (page_map.pages[page].entry.load(std::memory_order_relaxed) != 0)
          return {"a free page has no entry", &page_map.spans[page]};
      }
      (span.zeroed ? clean : dirty) += span.pages;
    } else if (span.pages > 1 && last.state != SpanState::in_use) {
      return {"the last page of a span in use is marked as in use", &span};
    }
    dense += is_dense(span) ? 1 : 0;
    free_before = is_free ? &span : nullptr;
    i += span.pages;
  }
  if (dirty != dirty_.pages() || clean != clean_.pages())
    return {"free pages are those in the lists", nullptr};
  if (dense != dense_pages_) return {"pages of short slabs are counted", nullptr};
  if (top_ > committed_ || committed_ > range_.pages())
    return {"pages in use are committed, and committed pages have addresses", nullptr};
  if (const Fault fault = dirty_.find_fault(false)) return fault;
  return clean_.find_fault(true);
}

}  // namespace ts::engine
