// Purges dirty spans, longest first.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/event_counts.h"
#include "core/current_heap.h"
#include "core/hooks.h"
#include "core/large_memory.h"
#include "core/page_heap.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// A purge ends after this many refusals.
constexpr unsigned most_refusals = 32;

}  // namespace

// Takes clean memory after the span out of the lists, up to the end of a huge page: a huge page
// that begins in the span may extend that far (huge_page_probe.cpp), and its rest would stay
// resident. Returns the pages; if it takes any, the span ends at the end of an OS page.
std::size_t PageHeap::take_rest_of_huge_page(const Span* span, std::size_t pages) noexcept {
  const std::size_t end_page = first_page_of(span) + pages;
  const std::size_t rest = -(page_map.base / page_bytes + end_page) & (pages_per_huge_page - 1);
  if (end_page == top_) {
    const std::size_t more = std::min(rest, committed_ - top_);
    move_end(top_ + more);
    return more;
  }
  Span* const after = page_map.spans + end_page;
  if (rest == 0 || after->state != SpanState::free || !after->zeroed) return 0;
  const std::size_t clean = after->pages;
  std::size_t more = std::min(rest, clean);
  more -= std::min(more, (end_page + more) & (page_map.pages_per_os_page - 1));
  if (more == 0) return 0;
  clean_.remove(after);
  if (more != clean) insert(after + more, clean - more, true);
  return more;
}

// Removes a span from leaving_, and wakes threads that wait for a purge to end.
void PageHeap::end_purge(Span* span, std::size_t pages) noexcept {
  (span->previous != nullptr ? span->previous->next : leaving_) = span->next;
  if (span->next != nullptr) span->next->previous = span->previous;
  purging_pages_ -= pages;
  // relaxed: waiting threads check under the lock
  purges_.fetch_add(1, std::memory_order_relaxed);
  if (waiting_for_purges_ != 0) [[unlikely]]
    os::wake(purges_, static_cast<int>(waiting_for_purges_));
}

// Purges the OS pages within a chosen span, without the lock. If OS pages are longer than the
// engine's, the ends of the span may share one with its neighbours, and stay dirty. Null, or the
// part that the system refused, which is then in no list.
Span* PageHeap::purge_within(Span* span) noexcept {
  const std::size_t pages = span->pages;
  const std::size_t begin = first_page_of(span);
  const std::size_t before = align_up(begin, page_map.pages_per_os_page) - begin;
  const std::size_t end = align_down(begin + pages, page_map.pages_per_os_page) - begin;
  Span* const within = span + before;
  // Tells the child of a fork whose span it is (forget_other_threads).
  span->purger = &this_thread;
  span->previous = nullptr;
  span->next = leaving_;
  if (leaving_ != nullptr) leaving_->previous = span;
  leaving_ = span;
  lock_.unlock();
  const std::size_t bytes = (end - before) * page_bytes;
  const bool discarded = os::discard(memory_of(within), bytes);
  const bool is_there = !discarded || gives_up_charge(memory_of(within), bytes) ||
                        merge_mappings(memory_of(within), bytes);
  lock_.lock();
  end_purge(span, pages);
  // Marks the parts before any of them is merged with its neighbours.
  if (before != 0) set_in_use(span, before, SpanState::in_use);
  set_in_use(within, end - before, SpanState::in_use);
  if (end != pages) set_in_use(span + end, pages - end, SpanState::in_use);
  if (!is_there) {  // stays in use
    set_in_use(within, end - before, SpanState::large);
    within->usable_pages.store(within->pages, std::memory_order_relaxed);
    within->arena.store(0, std::memory_order_relaxed);
  } else if (discarded) {
    insert_coalesced(within, end - before, true);
  }
  if (before != 0) insert_coalesced(span, before, false);
  if (end != pages) insert_coalesced(span + end, pages - end, false);
  if constexpr (counting) {
    if (discarded) count_event(Event::purge_calls);
  }
  return discarded ? nullptr : within;
}

// Chooses dirty spans of at least `min_pages`, the longest first, until about `keep_pages` are
// left, or about `at_most` are chosen. Returns how many pages are.
[[gnu::noinline]] std::size_t PageHeap::choose_purges(std::size_t keep_pages, std::size_t min_pages,
                                                      std::size_t at_most) noexcept {
  // A span of this length contains a whole OS page, wherever it begins.
  min_pages = std::max(min_pages, 2 * page_map.pages_per_os_page - 1);
  std::size_t chosen = 0;
  while (dirty_.pages() > keep_pages && chosen < at_most) {
    Span* span = dirty_.longest();
    if (span == nullptr || span->pages < min_pages) break;
    check(span->state == SpanState::free && !span->zeroed, "a purged span is free and dirty", span);
    dirty_.remove(span);
    std::size_t pages = span->pages;
    if (pages > at_most - chosen) {
      // Takes its end, in whole huge pages.
      const std::size_t first = page_map.base / page_bytes + first_page_of(span);
      const std::size_t cut = align_down(first + pages - (at_most - chosen), pages_per_huge_page);
      if (cut > first) {
        const std::size_t left = cut - first;
        insert(span, left, false);
        span += left;
        pages -= left;
      }
    }
    const std::size_t all = pages + take_rest_of_huge_page(span, pages);
    set_in_use(span, all, SpanState::in_use);
    span->usable_pages.store(static_cast<std::uint32_t>(pages), std::memory_order_relaxed);
    span->next = nullptr;
    (first_chosen_ != nullptr ? last_chosen_->next : first_chosen_) = span;
    last_chosen_ = span;
    purging_pages_ += all;
    chosen += pages;
  }
  if (chosen != 0) {
    has_purges_.store(true, std::memory_order_relaxed);
    last_purge_ = {keep_pages, min_pages};
  }
  return chosen;
}

// The next span to purge. If the system refused some, others are chosen in their place while those
// are in no list; else the next purge would choose the same ones again.
Span* PageHeap::next_chosen(std::size_t& refused) noexcept {
  if (first_chosen_ == nullptr && refused != 0) {
    const std::size_t keep = last_purge_.keep_pages;
    choose_purges(keep - std::min(keep, refused), last_purge_.min_pages, std::exchange(refused, 0));
  }
  Span* const span = first_chosen_;
  if (span == nullptr) return nullptr;
  first_chosen_ = span->next;
  if (first_chosen_ == nullptr) has_purges_.store(false, std::memory_order_relaxed);
  return span;
}

// Memory that the system refuses to take, such as locked memory, stays dirty. It is in no list
// while other spans are purged.
std::size_t PageHeap::send_purges() noexcept {
  std::size_t gone = 0;
  std::size_t refused = 0;
  std::size_t to_replace = 0;
  unsigned refusals = 0;
  Span* all_refused = nullptr;
  const Guard guard{lock_};
  while (Span* const span = next_chosen(to_replace)) {
    const std::size_t pages = span->usable_pages.load(std::memory_order_relaxed);
    const bool is_tried = refusals != most_refusals;  // after more, all is probably locked
    if (!is_tried) purging_pages_ -= span->pages;
    Span* const left = is_tried ? purge_within(span) : span;
    if (left == nullptr) {
      count_given_back(pages * page_bytes);
      gone += pages;
      continue;
    }
    if (is_tried && ++refusals != most_refusals) to_replace += pages;
    refused += pages;
    left->next = all_refused;
    all_refused = left;
  }
  if (refusals > 1 && refused > gone) stop_moving();  // most memory is locked
  while (all_refused != nullptr) {
    Span* const span = all_refused;
    all_refused = span->next;
    insert_coalesced(span, span->pages, false);
  }
  if (refusals != 0) policy_.note_dirty(dirty_.pages());
  return gone;
}

[[gnu::cold]] void PageHeap::end_watch() noexcept {
  watched_above_ = never;
  hooks::dirty_memory_grew();
}

void PageHeap::choose_surplus(std::size_t min_pages, std::size_t at_most) noexcept {
  if (dirty_.pages() > watched_above_) [[unlikely]]
    end_watch();
  if (PurgePolicy::is_surplus(in_use(), dirty_.pages(), purge_delay())) [[unlikely]]
    choose_by_policy(min_pages, at_most);
}

[[gnu::noinline]] void PageHeap::choose_by_policy(std::size_t min_pages,
                                                  std::size_t at_most) noexcept {
  const std::uint64_t now = os::coarse_milliseconds();
  const std::size_t keep = policy_.pages_to_keep(now, in_use(), dirty_.pages(), purge_delay());
  if (keep == PurgePolicy::keep_all) return;
  policy_.note_purge(now, dirty_.pages(), keep);
  choose_purges(keep, min_pages, releases_a_slice_ ? slice_pages : at_most);
  policy_.note_dirty(dirty_.pages());
}

bool PageHeap::purge_some(bool is_quiet) noexcept {
  std::size_t before = 0;
  bool was_due = false;
  {
    const Guard guard{lock_};
    const std::size_t min_pages = is_quiet ? 1 : min_purge_pages;
    before = dirty_.pages();
    const std::size_t slice = std::min(slice_of_scavenging, policy_.pages_left(before));
    was_due = policy_.pages_left(before) != 0;
    if (slice == 0) {
      choose_surplus(min_pages, slice_of_scavenging);
    } else {
      choose_purges(before - slice, min_pages, slice);
      policy_.note_dirty(dirty_.pages());
    }
  }
  send_purges();
  const Guard guard{lock_};
  const bool is_refused = is_quiet && was_due && dirty_.pages() == before;
  return !is_refused && PurgePolicy::is_surplus(in_use(), dirty_.pages(), purge_delay());
}

PageHeap::RoundEnd PageHeap::end_round() noexcept {
  const Guard guard{lock_};
  const std::uint64_t now = os::coarse_milliseconds();
  const std::size_t dirty = dirty_.pages();
  const std::size_t keep = policy_.pages_to_keep_in_round(now, in_use(), dirty, purge_delay());
  if (keep == PurgePolicy::keep_all) return {0, policy_.is_settled()};
  policy_.note_purge(now, dirty, keep);
  return {dirty - keep, policy_.is_settled()};
}

std::size_t PageHeap::purge_slice(std::size_t pages) noexcept {
  {
    const Guard guard{lock_};
    const std::size_t min_pages = policy_.is_settled() ? 1 : min_purge_pages;
    choose_purges(0, min_pages, std::min(pages, slice_pages));
    policy_.note_dirty(dirty_.pages());
  }
  return send_purges();
}

void PageHeap::limit_releases_to_a_slice(bool limit) noexcept {
  const Guard guard{lock_};
  releases_a_slice_ = limit;
  watched_above_ = never;
}

bool PageHeap::has_surplus_at_rest() noexcept {
  const Guard guard{lock_};
  return dirty_.pages() > rest_limit();
}

void PageHeap::watch_dirty_memory() noexcept {
  const Guard guard{lock_};
  watched_above_ = std::max(rest_limit(), dirty_.pages() + PurgePolicy::min_rest_limit);
}

bool PageHeap::merge_for(std::size_t pages) noexcept {
  {
    const Guard guard{lock_};
    if (dirty_.pages() + clean_.pages() < pages || dirty_.pages() == 0) return false;
  }
  purge_all_but(0);
  return true;
}

bool PageHeap::trim(std::size_t keep_bytes) noexcept {
  std::size_t before = 0;
  {
    const Guard guard{lock_};
    before = dirty_.pages();
  }
  purge_all_but(keep_bytes / page_bytes);
  give_back_tables();
  const Guard guard{lock_};
  return dirty_.pages() != before;
}

// Other threads may look up an address on such a page meanwhile: its entry is 0 before and after.
void PageHeap::give_back_tables() noexcept {
  constexpr std::size_t min_pages = (std::size_t{2} << 20) / page_bytes;
  const Guard guard{lock_};
  for (Span* span = clean_.longest(); span != nullptr && span->pages >= min_pages;
       span = clean_.next_shorter(span)) {
    if (span->usable_pages.load(std::memory_order_relaxed) == span->pages) continue;
    AddressRange::forget_tables(first_page_of(span) + 1, span->pages - 2);
    span->usable_pages.store(span->pages, std::memory_order_relaxed);
  }
}

// Repeats while it makes progress: span ends that stay dirty merge with others.
void PageHeap::purge_all_but(std::size_t pages) noexcept {
  do {
    const Guard guard{lock_};
    choose_purges(pages, 1, no_limit);
    policy_.note_dirty(dirty_.pages());
  } while (send_purges() != 0);
}

// Spans that other threads are purging are dirty again. (The calling thread may itself be in a
// purge: if an interposed system function forks, or a signal handler in a process with one thread.)
void PageHeap::forget_other_threads() noexcept {
  watched_above_ = never;
  releases_a_slice_ = false;
  waiting_for_purges_ = 0;
  for (Span* span = leaving_; span != nullptr;) {
    Span* const next = span->next;
    if (span->purger != &this_thread) {
      const std::size_t pages = span->pages;
      end_purge(span, pages);
      insert_coalesced(span, pages, false);
    }
    span = next;
  }
}

}  // namespace ts::engine
