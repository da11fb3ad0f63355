#include "core/span_supply.h"

#include <cerrno>

#include "core/current_heap.h"
#include "core/deferred_work.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "core/reclaim_all.h"
#include "core/remote_frees.h"
#include "core/spare_lists.h"
#include "os/os.h"

namespace ts::engine {

void* out_of_memory() noexcept {
  os::explain_refusal();
  hooks::before_failure();
  errno = ENOMEM;
  return nullptr;
}

Span* allocate_span(std::size_t pages, std::size_t alignment_pages, unsigned size_class) noexcept {
  if (pages > AddressRange::max_pages) return nullptr;  // too large: gives nothing back for it
  using From = PageHeap::From;
  const auto allocate = [=](From from) {
    return page_heap.allocate(pages, alignment_pages, size_class, from);
  };
  Span* span = allocate(From::dirty);
  if (span != nullptr) return span;
  if (has_heap()) {
    {
      const HeapHold hold{current_heap()};
      flush_batches(current_heap());
      const bool has_flushed = flush_spare_lists_to_grow(current_heap(), pages);
      if (collect(current_heap()) || has_flushed) span = allocate(From::dirty);
    }
    const DeferredCall call{&current_heap()};
    if (span == nullptr && call.may_go_on()) hooks::heap_grows(current_heap(), pages);
  }
  if (span != nullptr) return span;
  constexpr std::size_t heaps_at_a_time = 4;
  if (collect_abandoned(heaps_at_a_time)) span = allocate(From::dirty);
  if (span != nullptr) return span;
  hooks::before_growth(pages);
  std::uint32_t ended_purges = page_heap.ended_purges();
  span = allocate(From::anywhere);
  if (span != nullptr) return span;
  bool has_more = collect_abandoned(SIZE_MAX);
  has_more |= reclaim_all();
  has_more |= page_heap.send_purges() != 0;
  if (has_more) span = allocate(From::anywhere);
  if (span == nullptr && page_heap.merge_for(pages)) span = allocate(From::anywhere);
  // Another thread may take the memory as soon as it is back in the lists.
  constexpr int most_waits = 64;
  for (int i = 0; span == nullptr && i < most_waits && page_heap.wait_for_purge(ended_purges); ++i)
    span = allocate(From::anywhere);
  if (span != nullptr) return span;
  if (page_heap.has_room(pages)) return allocate(From::anywhere);
  hooks::growth_refused(page_heap.touched_pages(), pages);
  return nullptr;
}

}  // namespace ts::engine
