#include "engine/page_heap.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/event_counts.h"
#include "engine/huge_pages.h"
#include "os/os.h"

namespace ts::engine {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t commit_granules = huge_page_bytes / granule_bytes;

// A process with so much memory in slabs of small blocks, which are filled from end to end, will
// fill a huge page, too. A smaller one would only hold more; and so would one of larger blocks, of
// which programs often touch but a part.
// And each heap's first slabs, one for each class that the thread uses, may never be filled.
constexpr std::size_t huge_pages_from_granules = (std::size_t{16} << 20) / granule_bytes;
constexpr std::size_t first_granules_of_heap = (std::size_t{1} << 20) / granule_bytes;

constexpr std::size_t min_idle_limit_granules = (std::size_t{4} << 20) / granule_bytes;
constexpr std::size_t min_purge_granules = (std::size_t{64} << 10) / granule_bytes;
constexpr std::uint64_t idle_ms = 250;
constexpr std::size_t min_peak_limit_granules = (std::size_t{32} << 20) / granule_bytes;
constexpr std::uint64_t regret_ms = 1000;   // memory needed so soon again should have been kept
constexpr std::uint64_t forget_ms = 10000;  // a program that lives so long without has changed

// Whether a span is a slab of small blocks: those of larger ones are longer (size_classes.h).
bool is_dense(const Span& span) noexcept {
  return span.state == SpanState::slab && span.granules == 1;
}

}  // namespace

unsigned PageHeap::list_of(std::size_t granules) noexcept {
  static_assert(Room::max_granules < std::size_t{1} << 30);  // the last list's
  if (granules < exact_lists) return static_cast<unsigned>(granules);
  const unsigned log = static_cast<unsigned>(std::bit_width(granules)) - 1;
  return exact_lists + (log - 6) * 8 + static_cast<unsigned>((granules >> (log - 3)) & 7);
}

void PageHeap::insert(Span* span, std::size_t granules, bool zeroed) noexcept {
  FreeLists& lists = zeroed ? clean_ : dirty_;
  const unsigned list = list_of(granules);
  span->granules = span[granules - 1].granules = static_cast<std::uint32_t>(granules);
  span->state = span[granules - 1].state = SpanState::free;
  span->zeroed = zeroed;
  span->previous = nullptr;
  span->next = lists.heads[list];
  if (span->next != nullptr) span->next->previous = span;
  lists.heads[list] = span;
  lists.occupied[list / 64] |= std::uint64_t{1} << list % 64;
  lists.granules += granules;
}

void PageHeap::remove(Span* span) noexcept {
  FreeLists& lists = span->zeroed ? clean_ : dirty_;
  const unsigned list = list_of(span->granules);
  if (span->next != nullptr) span->next->previous = span->previous;
  (span->previous != nullptr ? span->previous->next : lists.heads[list]) = span->next;
  if (lists.heads[list] == nullptr) lists.occupied[list / 64] &= ~(std::uint64_t{1} << list % 64);
  lists.granules -= span->granules;
}

// The first fit within the list of the request's own length (a few are looked at), or any of the
// next longer ones, where all are long enough ("good fit": Masmano et al., TLSF, 2004).
Span* PageHeap::find(const FreeLists& lists, std::size_t granules) noexcept {
  constexpr int looked_at = 16;
  const unsigned own = list_of(granules);
  int left = looked_at;
  for (Span* span = lists.heads[own]; span != nullptr && left != 0; span = span->next, --left) {
    if (span->granules >= granules) return span;
  }
  unsigned word = (own + 1) / 64;
  if (word >= list_count / 64) return nullptr;
  std::uint64_t bits = lists.occupied[word] & (~std::uint64_t{0} << (own + 1) % 64);
  while (bits == 0) {
    if (++word == list_count / 64) return nullptr;
    bits = lists.occupied[word];
  }
  return lists.heads[word * 64 + static_cast<unsigned>(std::countr_zero(bits))];
}

// Out of the lists, to be used.
void PageHeap::claim(Span* span) noexcept {
  remove(span);
  least_dirty_ = std::min(least_dirty_, dirty_.granules);
}

void PageHeap::set_in_use(Span* span, std::size_t granules) noexcept {
  span[granules - 1].state = SpanState::in_use;
  span->state = SpanState::in_use;
  span->granules = static_cast<std::uint32_t>(granules);
}

// A span of at least so many granules, out of the lists or from beyond the end.
Span* PageHeap::take(std::size_t granules, From from) noexcept {
  Span* span = from != From::clean ? find(dirty_, granules) : nullptr;
  if (span == nullptr) {
    if (from == From::dirty) return nullptr;
    if (from == From::anywhere) regret_purge();
    span = find(clean_, granules);
    if (span == nullptr) return grow(granules, from);
  }
  if constexpr (counting)
    count_event(span->zeroed ? Event::spans_clean : Event::spans_reused_dirty);
  claim(span);
  return span;
}

// Makes the first `granules` touchable.
bool PageHeap::commit(std::size_t granules) noexcept {
  if (granules <= committed_) return true;
  const std::size_t room_before = room_.granules();
  if (!room_.extend(granules)) return false;
  std::byte* const begin = memory_of(layout.spans + committed_);
  std::size_t more = std::min(align_up(granules, commit_granules), room_.granules()) - committed_;
  if (!os::commit(begin, more * granule_bytes)) {
    more = granules - committed_;  // under a limit, what is needed may still go
    if (!os::commit(begin, more * granule_bytes)) {
      room_.shrink(room_before);
      return false;
    }
  }
  const std::size_t heaps = layout.heap_count.load(std::memory_order_relaxed);
  if (dense_granules_ >= huge_pages_from_granules + heaps * first_granules_of_heap &&
      dense_granules_ >= top_ / 2)
    ask_for_huge_pages(begin, more * granule_bytes);
  committed_ += more;
  return true;
}

// Up, and never down: what is beyond reads as zero.
void PageHeap::move_end(std::size_t top) noexcept {
  top_ = top;
  // relaxed: see entry_of
  layout.granule_count.store(top, std::memory_order_relaxed);
}

// A span from beyond the end. A free one that ends there is part of it, unless the new one has to be
// clean and that is not.
Span* PageHeap::grow(std::size_t granules, From from) noexcept {
  std::size_t begin = top_;
  if (top_ != 0 && layout.spans[top_ - 1].state == SpanState::free) {
    Span* const last = layout.spans + top_ - layout.spans[top_ - 1].granules;
    if (from != From::clean || last->zeroed) {
      begin = number_of(last);
      // It may be long enough: find() does not look at all of a list.
      if (last->granules >= granules) {
        claim(last);
        return last;
      }
    }
  }
  if (!commit(begin + granules)) return nullptr;
  Span* const span = layout.spans + begin;
  bool zeroed = true;
  if (begin != top_) {
    zeroed = span->zeroed;
    claim(span);
  }
  span->granules = static_cast<std::uint32_t>(granules);
  span->zeroed = zeroed;
  if constexpr (counting)
    count_event(Event::growth_bytes, (begin + granules - top_) * granule_bytes);
  move_end(begin + granules);
  ++grow_calls_;
  if constexpr (counting) count_event(Event::growth_calls);
  return span;
}

// The part of a span, out of the lists, that is asked for; the rest is free again.
Span* PageHeap::cut(Span* whole, std::size_t granules, std::size_t alignment_granules) noexcept {
  const bool zeroed = whole->zeroed;
  const std::size_t got = whole->granules;
  const std::size_t first_granule = layout.base / granule_bytes + number_of(whole);
  const std::size_t before = align_up(first_granule, alignment_granules) - first_granule;
  Span* const span = whole + before;
  set_in_use(span, granules);
  span->zeroed = zeroed;
  if (before != 0) insert(whole, before, zeroed);
  if (before + granules != got) insert(span + granules, got - before - granules, zeroed);
  return span;
}

Span* PageHeap::allocate(std::size_t granules, std::size_t alignment_granules, unsigned size_class,
                         From from) noexcept {
  const Guard guard{lock_};
  if (granules > Room::max_granules || alignment_granules > Room::max_granules) return nullptr;
  Span* span = take(granules + alignment_granules - 1, from);
  if (span == nullptr) return nullptr;
  span = cut(span, granules, alignment_granules);
  span->state = size_class != 0 ? SpanState::slab : SpanState::large;
  span->size_class = static_cast<std::uint8_t>(size_class);
  span->slab_blocks = size_class != 0 ? blocks_in_slab(size_classes[size_class], granules) : 0;
  span->used.store(0, std::memory_order_relaxed);
  if (is_dense(*span)) dense_granules_ += granules;
  return span;
}

// Puts granules into the lists, together with the free spans of their kind on either side. Clean
// and dirty ones stay apart: which memory is touched is what decides where a request goes.
void PageHeap::give_up(Span* span, std::size_t granules, bool zeroed) noexcept {
  const std::size_t begin = number_of(span);
  Span* const behind = span + granules;
  if (begin + granules < top_ && behind->state == SpanState::free && behind->zeroed == zeroed) {
    granules += behind->granules;
    remove(behind);
  }
  if (begin != 0 && span[-1].state == SpanState::free) {
    Span* const before = span - span[-1].granules;
    if (before->zeroed == zeroed) {
      granules += before->granules;
      remove(before);
      span = before;
    }
  }
  insert(span, granules, zeroed);
}

void PageHeap::release(Span* span) noexcept {
  const Guard guard{lock_};
  if (is_dense(*span)) dense_granules_ -= span->granules;
  give_up(span, span->granules, false);
  purge_surplus();
}

void PageHeap::release_clean(Span* span) noexcept {
  const Guard guard{lock_};
  give_up(span, span->granules, true);
}

bool PageHeap::resize(Span* span, std::size_t granules) noexcept {
  const Guard guard{lock_};
  const std::size_t now = span->granules;
  if (granules > Room::max_granules) return false;
  if (granules < now) {
    set_in_use(span, granules);
    span->state = SpanState::large;
    give_up(span + granules, now - granules, false);
    purge_surplus();
    return true;
  }
  const std::size_t more = granules - now;
  if (more == 0) return true;
  Span* const behind = span + now;
  const bool at_end = number_of(behind) == top_;
  if (!at_end && behind->state != SpanState::free) return false;
  if (!at_end && behind->granules >= more) {
    const std::size_t left = behind->granules - more;
    const bool zeroed = behind->zeroed;
    claim(behind);
    if (left != 0) insert(behind + more, left, zeroed);
  } else if ((!at_end && number_of(behind) + behind->granules != top_) ||
             grow(more, From::anywhere) == nullptr) {
    return false;  // only what is last can grow by more than what is free behind it
  }
  set_in_use(span, granules);
  span->state = SpanState::large;
  span->zeroed = false;
  return true;
}

std::size_t PageHeap::clean_behind(const Span* span) noexcept {
  const Guard guard{lock_};
  const Span* const behind = span + span->granules;
  const std::size_t beyond_end = committed_ - top_;
  if (number_of(behind) == top_) return beyond_end;
  if (behind->state != SpanState::free || !behind->zeroed) return 0;
  return behind->granules + (number_of(behind) + behind->granules == top_ ? beyond_end : 0);
}

std::uint32_t PageHeap::new_heap() noexcept {
  const Guard guard{lock_};
  const std::uint32_t number = layout.heap_count.load(std::memory_order_relaxed) + 1;
  if (!room_.add_heap(number)) return 0;
  layout.heap_count.store(number, std::memory_order_relaxed);
  return number;
}

// The head of the highest list that has any.
Span* PageHeap::longest(const FreeLists& lists) noexcept {
  for (unsigned word = list_count / 64; word-- > 0;) {
    if (lists.occupied[word] != 0)
      return lists
          .heads[word * 64 + static_cast<unsigned>(std::bit_width(lists.occupied[word])) - 1];
  }
  return nullptr;
}

// Takes clean memory behind the span out of the lists, up to the end of a huge page: one that begins
// in the span may reach so far (huge_pages.cpp), and its rest would stay resident. Returns how much.
std::size_t PageHeap::claim_rest_of_huge_page(const Span* span, std::size_t granules) noexcept {
  const std::size_t end = number_of(span) + granules;
  const std::size_t rest = -(layout.base / granule_bytes + end) & (commit_granules - 1);
  if (end == top_) {
    const std::size_t more = std::min(rest, committed_ - top_);
    move_end(top_ + more);
    return more;
  }
  Span* const behind = layout.spans + end;
  if (rest == 0 || behind->state != SpanState::free || !behind->zeroed) return 0;
  const std::size_t clean = behind->granules;
  const std::size_t more = std::min(rest, clean);
  remove(behind);
  if (more != clean) insert(behind + more, clean - more, true);
  return more;
}

// Gives dirty spans back, longest first, until about `keep_granules` are left. While the system
// works, the span is in no list and the lock is free: others go on.
void PageHeap::purge(std::size_t keep_granules, std::size_t min_span_granules) noexcept {
  while (dirty_.granules > keep_granules) {
    Span* const span = longest(dirty_);
    if (span->granules < min_span_granules) return;
    remove(span);
    const std::size_t granules = span->granules + claim_rest_of_huge_page(span, span->granules);
    set_in_use(span, granules);
    lock_.unlock();
    const bool discarded = os::discard(memory_of(span), granules * granule_bytes);
    lock_.lock();
    give_up(span, granules, discarded);
    if (!discarded) return;  // locked in memory, for one
    if constexpr (counting) count_event(Event::purge_calls);
    if constexpr (counting) count_event(Event::purged_bytes, granules * granule_bytes);
  }
}

void PageHeap::purge_surplus() noexcept {
  const std::size_t in_use = top_ - dirty_.granules - clean_.granules;
  const std::size_t usual_limit = std::max(min_idle_limit_granules, in_use / 4);
  if (dirty_.granules <= usual_limit) return;
  const std::uint64_t now = os::coarse_milliseconds();
  if (now - purged_at_ms_ > forget_ms) regretted_ = 0;
  const std::size_t idle_limit = std::max(usual_limit, regretted_);
  if (dirty_.granules <= idle_limit) return;
  if (now - window_began_ms_ >= idle_ms) {
    const std::size_t idle = now - window_began_ms_ < 2 * idle_ms ? least_dirty_ : 0;
    window_began_ms_ = now;
    least_dirty_ = dirty_.granules;
    if (idle > idle_limit) return purge_and_remember(dirty_.granules - idle + idle_limit / 2, now);
  }
  const std::size_t peak_limit = std::max({min_peak_limit_granules, in_use / 2, regretted_});
  if (dirty_.granules > peak_limit) purge_and_remember(peak_limit / 2, now);
}

void PageHeap::purge_and_remember(std::size_t keep_granules, std::uint64_t now) noexcept {
  purged_at_ms_ = now;
  purged_from_ = dirty_.granules;
  may_regret_ = true;
  purge(keep_granules, min_purge_granules);
  least_dirty_ = std::min(least_dirty_, dirty_.granules);
}

// Fresh memory is about to be used. If some was given back a moment ago, that was too early.
void PageHeap::regret_purge() noexcept {
  if (!may_regret_) return;
  may_regret_ = false;
  if (os::coarse_milliseconds() - purged_at_ms_ <= regret_ms) regretted_ = 2 * purged_from_;
}

bool PageHeap::trim(std::size_t keep_bytes) noexcept {
  const Guard guard{lock_};
  const std::size_t before = dirty_.granules;
  purge(keep_bytes / granule_bytes, 1);
  return dirty_.granules != before;
}

PageHeap::Totals PageHeap::totals() noexcept {
  const Guard guard{lock_};
  return {top_ * granule_bytes, grow_calls_, layout.heap_count.load(std::memory_order_relaxed)};
}

bool PageHeap::is_valid() noexcept {
  const Guard guard{lock_};
  std::size_t dirty = 0;
  std::size_t clean = 0;
  const Span* free_before = nullptr;
  std::size_t i = 0;
  while (i < top_) {
    const Span& span = layout.spans[i];
    if (span.granules == 0 || span.granules > top_ - i) return false;
    const bool is_free = span.state == SpanState::free;
    if (is_free) {
      const Span& last = layout.spans[i + span.granules - 1];
      if (free_before != nullptr && free_before->zeroed == span.zeroed) return false;
      if (last.state != SpanState::free || last.granules != span.granules) return false;
      (span.zeroed ? clean : dirty) += span.granules;
    } else if (span.granules > 1 &&
               layout.spans[i + span.granules - 1].state != SpanState::in_use) {
      return false;
    }
    free_before = is_free ? &span : nullptr;
    i += span.granules;
  }
  return i == top_ && dirty == dirty_.granules && clean == clean_.granules;
}

}  // namespace ts::engine
