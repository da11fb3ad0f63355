#include "core/page_heap.h"

#include <algorithm>

#include "base/check.h"
#include "base/event_counts.h"
#include "core/large_memory.h"
#include "os/os.h"

namespace ts::engine {
void PageHeap::insert(Span* span, std::size_t pages, bool zeroed) noexcept {
  span->pages = span[pages - 1].pages = static_cast<std::uint32_t>(pages);
  span->state = span[pages - 1].state = SpanState::free;
  span->zeroed = zeroed;
  span->usable_pages.store(0, std::memory_order_relaxed);
  spans_of(*span).insert(span);
}

// Out of line, because most freed spans have no free neighbour.
[[gnu::noinline]] void PageHeap::remove(Span* span) noexcept { spans_of(*span).remove(span); }

// Merges pages with the free spans of their kind on either side. Clean and dirty spans are not
// merged with each other, because requests take dirty memory first.
void PageHeap::insert_coalesced(Span* span, std::size_t pages, bool zeroed) noexcept {
  const std::size_t begin = first_page_of(span);
  Span* const after = span + pages;
  if (begin + pages < top_ && after->state == SpanState::free && after->zeroed == zeroed) {
    pages += after->pages;
    remove(after);
  }
  if (begin != 0 && span[-1].state == SpanState::free) {
    Span* const before = span - span[-1].pages;
    if (before->zeroed == zeroed) {
      pages += before->pages;
      remove(before);
      span = before;
    }
  }
  insert(span, pages, zeroed);
}

// Takes the span out of the lists, to be used.
void PageHeap::unlink_free(Span* span) noexcept {
  spans_of(*span).remove(span);
  policy_.note_dirty(dirty_.pages());
}

void PageHeap::set_in_use(Span* span, std::size_t pages, SpanState state) noexcept {
  span[pages - 1].state = SpanState::in_use;
  span->state = state;
  span->pages = static_cast<std::uint32_t>(pages);
}

// Takes this dirty span out of the lists, with as much of its clean neighbours as makes it long
// enough; null if they are too short.
Span* PageHeap::join(Span* span, std::size_t pages, bool may_begin_before) noexcept {
  const std::size_t dirty = span->pages;
  if (dirty >= pages || !is_room_for(pages - dirty)) return nullptr;
  std::size_t missing = pages - dirty;
  Span* const after = span + dirty;
  const bool has_after = after < end() && after->state == SpanState::free;
  const std::size_t from_after = has_after ? std::min<std::size_t>(missing, after->pages) : 0;
  missing -= from_after;
  const bool has_before =
      may_begin_before && span != page_map.spans && span[-1].state == SpanState::free;
  Span* const before = has_before ? span - span[-1].pages : nullptr;
  if (missing > (has_before ? before->pages : 0)) return nullptr;
  unlink_free(span);
  if (from_after != 0) {
    clean_.remove(after);
    if (after->pages != from_after) insert(after + from_after, after->pages - from_after, true);
  }
  if (missing != 0) {
    clean_.remove(before);
    span -= missing;
    if (before != span) insert(before, before->pages - missing, true);
  }
  span->pages = static_cast<std::uint32_t>(pages);
  span->zeroed = false;
  return span;
}

// Joins one of the longest dirty spans with its clean neighbours, so that partly purged memory is
// reused; null if none of those tried is long enough. For programs that touch only the beginning of
// blocks, the dirty part should be that beginning, and may be short (large_memory.h).
[[gnu::noinline]] Span* PageHeap::join_longest(std::size_t pages) noexcept {
  constexpr int looked_at = 64;
  const bool sparse = are_sparse(pages);
  const std::size_t least_dirty = pages / (sparse ? 32 : 2);
  Span* span = dirty_.longest();
  for (int left = looked_at; span != nullptr && left != 0; --left) {
    if (span->pages < least_dirty) return nullptr;
    if (Span* const joined = join(span, pages, !sparse); joined != nullptr) return joined;
    span = dirty_.next_shorter(span);
  }
  return nullptr;
}

// Takes a span of at least `enough` pages, of which `pages` are needed, out of the lists or from
// beyond the end.
Span* PageHeap::take(std::size_t enough, std::size_t pages, From from, bool may_join) noexcept {
  Span* span = from != From::clean ? dirty_.find(enough) : nullptr;
  if (span == nullptr && from != From::clean && may_join) {
    span = join_longest(enough);
    if (span != nullptr) return span;
  }
  if (span == nullptr) {
    if (from == From::dirty) return nullptr;
    if (!is_room_for(pages) && from == From::anywhere) [[unlikely]] {
      make_room(pages);
      return nullptr;
    }
    if (from == From::anywhere && policy_.watches_growth())
      policy_.note_growth(os::coarse_milliseconds());
    span = clean_.find(enough);
    if (span == nullptr) return grow(enough, from);
  }
  if constexpr (counting)
    count_event(span->zeroed ? Event::spans_clean : Event::spans_reused_dirty);
  unlink_free(span);
  return span;
}

// Cuts the requested part out of a span that is in no list; frees the rest.
Span* PageHeap::cut(Span* whole, std::size_t pages, std::size_t alignment_pages) noexcept {
  const bool zeroed = whole->zeroed;
  const std::size_t got = whole->pages;
  const std::size_t first_page = page_map.base / page_bytes + first_page_of(whole);
  const std::size_t before = align_up(first_page, alignment_pages) - first_page;
  check(before + pages <= got, "a span is shorter than what is cut from it", whole);
  Span* const span = whole + before;
  set_in_use(span, pages, SpanState::in_use);
  span->zeroed = zeroed;
  if (before != 0) insert(whole, before, zeroed);
  if (before + pages != got) insert(span + pages, got - before - pages, zeroed);
  return span;
}

Span* PageHeap::allocate(std::size_t pages, std::size_t alignment_pages, unsigned size_class,
                         From from) noexcept {
  const Guard guard{lock_};
  // Both are bounded by the address space, so the sum does not overflow.
  const std::size_t enough = pages + alignment_pages - 1;
  if (enough > AddressRange::max_pages) return nullptr;
  constexpr std::size_t min_joined = (std::size_t{1} << 20) / page_bytes;
  // A joined span is used whole: a remainder would be partly dirty and partly clean.
  Span* span = take(enough, pages, from, pages >= min_joined && alignment_pages == 1);
  if (span == nullptr) return nullptr;
  span = cut(span, pages, alignment_pages);
  if (!takes_charge(span, pages)) {
    insert_coalesced(span, pages, span->zeroed);
    return nullptr;
  }
  span->state = size_class != 0 ? SpanState::slab : SpanState::large;
  span->size_class = static_cast<std::uint8_t>(size_class);
  const std::uint32_t blocks =
      size_class != 0 ? blocks_in_slab(size_classes[size_class], pages) : 0;
  span->slab_blocks = static_cast<std::uint16_t>(blocks);
  span->sparse_limit = sparse_limit_of(*span);
  span->arena.store(0, std::memory_order_relaxed);
  if constexpr (debug_level >= 1) check_unused(*span);
  return span;
}

void PageHeap::release(Span* span) noexcept {
  const Guard guard{lock_};
  if constexpr (debug_level >= 1) check_unused(*span);
  insert_coalesced(span, span->pages, false);
  choose_surplus();
}

void PageHeap::release_clean(Span* span, std::size_t dirty) noexcept {
  const Guard guard{lock_};
  if constexpr (debug_level >= 1) check_unused(*span);
  const std::size_t pages = span->pages;
  if (dirty != 0) set_in_use(span, dirty, SpanState::large);
  gives_up_charge(memory_of(span + dirty), (pages - dirty) * page_bytes);
  insert_coalesced(span + dirty, pages - dirty, true);
  if (dirty == 0) return;
  insert_coalesced(span, dirty, false);
  choose_surplus();
}

bool PageHeap::resize(Span* span, std::size_t pages, bool can_move) noexcept {
  // relaxed: without a limit, any answer is right; with one, the lock decides
  if (pages > span->pages && is_limited_.load(std::memory_order_relaxed) &&
      !has_room(pages - span->pages))
    return false;
  const Guard guard{lock_};
  const std::size_t now = span->pages;
  if (pages < now) {
    set_in_use(span, pages, SpanState::large);
    insert_coalesced(span + pages, now - pages, false);
    choose_surplus();
    return true;
  }
  if (pages > AddressRange::max_pages) return false;
  const std::size_t more = pages - now;
  if (more == 0) return true;
  if (!is_room_for(more)) return false;
  Span* const after = span + now;
  const bool at_end = after == end();
  if (!at_end && after->state != SpanState::free) return false;
  if (!at_end && after->pages >= more) {
    const std::size_t left = after->pages - more;
    const bool zeroed = after->zeroed;
    unlink_free(after);
    if (left != 0) insert(after + more, left, zeroed);
  } else if ((!at_end && after + after->pages != end()) ||
             (can_move && has_clean(pages + pages / 2)) || grow(more, From::anywhere) == nullptr) {
    return false;  // only the last span can grow beyond the free pages after it
  }
  if (!takes_charge(after, more)) {
    // Part of it may be clean. If decommitted, it is committed again before use, even as dirty
    // memory.
    insert_coalesced(after, more, false);
    return false;
  }
  set_in_use(span, pages, SpanState::large);
  span->zeroed = false;
  return true;
}

std::size_t PageHeap::clean_after(const Span* span) noexcept {
  const Guard guard{lock_};
  const Span* const after = span + span->pages;
  const std::size_t beyond_end = committed_ - top_;
  if (after == end()) return beyond_end;
  if (after->state != SpanState::free || !after->zeroed) return 0;
  return after->pages + (after + after->pages == end() ? beyond_end : 0);
}

PageHeap::Totals PageHeap::totals() noexcept {
  const Guard guard{lock_};
  const std::uint32_t heaps = page_map.heap_count.load(std::memory_order_relaxed);
  return {top_ * page_bytes, grow_calls_, table_bytes(top_, heaps), limit_bytes(),
          hard_limit_bytes()};
}

// Level 1: the span changes hands. At most the first GiB is checked.
void PageHeap::check_unused(const Span& span) noexcept {
  const std::size_t first = first_page_of(&span);
  require(span.pages != 0 && span.pages <= top_ - first, "a span lies within the pages in use",
          &span);
  require(span.state == SpanState::slab || span.state == SpanState::large,
          "a span that changes hands is in use", &span);
  const std::size_t looked_at =
      std::min<std::size_t>(span.pages, (std::size_t{1} << 30) / page_bytes);
  for (std::size_t i = first; i < first + looked_at; ++i) {
    require(page_map.pages[i].entry.load(std::memory_order_relaxed) == 0,
            "pages of a span that changes hands have no entry", &span);
    const RemoteFrees& frees = page_map.remote_frees[i];
    bool has_frees = frees.pending.load(std::memory_order_relaxed) != 0;
    for (const auto& word : frees.bits) has_frees |= word.load(std::memory_order_relaxed) != 0;
    require(!has_frees, "a span that changes hands has no remote frees", &span);
  }
}

}  // namespace ts::engine
