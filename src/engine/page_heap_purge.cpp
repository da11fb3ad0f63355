// Purges: dirty spans go back to the operating system, longest first.
#include <algorithm>

#include "base/check.h"
#include "base/event_counts.h"
#include "engine/page_heap.h"
#include "os/os.h"

namespace ts::engine {
namespace {

constexpr std::size_t min_purge_pages = (std::size_t{64} << 10) / page_bytes;

}  // namespace

// Takes clean memory behind the span out of the lists, up to the end of a huge page. One that
// begins in the span may reach so far (huge_page_probe.cpp), and its rest would stay resident.
// Returns the pages.
std::size_t PageHeap::take_rest_of_huge_page(const Span* span, std::size_t pages) noexcept {
  const std::size_t end_page = first_page_of(span) + pages;
  const std::size_t rest = -(page_map.base / page_bytes + end_page) & (pages_per_huge_page - 1);
  if (end_page == top_) {
    const std::size_t more = std::min(rest, committed_ - top_);
    move_end(top_ + more);
    return more;
  }
  Span* const behind = page_map.spans + end_page;
  if (rest == 0 || behind->state != SpanState::free || !behind->zeroed) return 0;
  const std::size_t clean = behind->pages;
  const std::size_t more = std::min(rest, clean);
  clean_.remove(behind);
  if (more != clean) insert(behind + more, clean - more, true);
  return more;
}

// Gives dirty spans back until about `keep_pages` are left. During the system call, the span is in
// no list and the lock is free.
void PageHeap::purge(std::size_t keep_pages, std::size_t min_pages) noexcept {
  while (dirty_.pages() > keep_pages) {
    Span* const span = dirty_.longest();
    if (span->pages < min_pages) return;
    check(span->state == SpanState::free && !span->zeroed, "a purged span is free and dirty", span);
    dirty_.remove(span);
    const std::size_t pages = span->pages + take_rest_of_huge_page(span, span->pages);
    set_in_use(span, pages, SpanState::in_use);
    lock_.unlock();
    const bool discarded = os::discard(memory_of(span), pages * page_bytes);
    lock_.lock();
    insert_coalesced(span, pages, discarded);
    if (!discarded) return;  // locked in memory, for one
    if constexpr (counting) count_event(Event::purge_calls);
    if constexpr (counting) count_event(Event::purged_bytes, pages * page_bytes);
  }
}

void PageHeap::purge_surplus() noexcept {
  if (!PurgePolicy::is_surplus(in_use(), dirty_.pages())) return;
  const std::uint64_t now = os::coarse_milliseconds();
  const std::size_t keep = policy_.pages_to_keep(now, in_use(), dirty_.pages());
  if (keep == PurgePolicy::keep_all) return;
  policy_.note_purge(now, dirty_.pages());
  purge(keep, min_purge_pages);
  policy_.note_dirty(dirty_.pages());
}

bool PageHeap::trim(std::size_t keep_bytes) noexcept {
  const Guard guard{lock_};
  const std::size_t before = dirty_.pages();
  purge(keep_bytes / page_bytes, 1);
  return dirty_.pages() != before;
}

}  // namespace ts::engine
