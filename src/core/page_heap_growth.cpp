// The end of the page heap: spans from beyond the pages in use, memory that is committed for them
// in advance, and room within the hard limit.
#include <algorithm>

#include "base/bits.h"
#include "base/check.h"
#include "base/event_counts.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "os/os.h"

namespace ts::engine {
// Commits memory so that the first `pages` may be touched.
bool PageHeap::commit(std::size_t pages) noexcept {
  if (pages <= committed_) return true;
  const std::size_t range_before = range_.pages();
  if (!range_.extend(pages)) return false;
  std::byte* const begin = memory_of(page_map.spans + committed_);
  std::size_t more = std::min(align_up(pages, pages_per_huge_page), range_.pages()) - committed_;
  if (!os::commit(begin, more * page_bytes)) {
    // Under a limit, just the needed pages may still be possible.
    more = align_up(pages, page_map.pages_per_os_page) - committed_;
    if (!os::commit(begin, more * page_bytes)) {
      range_.shrink(range_before);
      return false;
    }
  }
  hooks::fresh_memory(begin, more * page_bytes, true);
  committed_ += more;
  return true;
}

bool PageHeap::gives_up_charge(std::byte* begin, std::size_t bytes) noexcept {
  constexpr std::size_t least = std::size_t{1} << 20;
  if (bytes < least || !os::counts_all_memory()) return false;
  // Whole OS pages.
  const std::uintptr_t first = align_up(address_of(begin), os::page_bytes());
  const std::uintptr_t end = align_down(address_of(begin) + bytes, os::page_bytes());
  return os::decommit(reinterpret_cast<void*>(first), end - first);
}

bool PageHeap::takes_charge(Span* span, std::size_t pages) noexcept {
  if (!os::counts_all_memory()) return true;
  const std::uintptr_t begin = address_of(memory_of(span));
  const std::uintptr_t first = align_down(begin, os::page_bytes());
  const std::uintptr_t end = align_up(begin + pages * page_bytes, os::page_bytes());
  return os::commit(reinterpret_cast<void*>(first), end - first);
}

// Moves up only: memory beyond the end reads as zero.
void PageHeap::move_end(std::size_t top) noexcept {
  check(top >= top_ && top <= committed_, "the end moves up, within committed memory");
  if constexpr (counting) count_event(Event::growth_bytes, (top - top_) * page_bytes);
  top_ = top;
  // relaxed: see entry_of
  page_map.page_count.store(top, std::memory_order_relaxed);
}

// Takes a span from beyond the end. Includes a free span that ends there, unless the new one must
// be clean and that one is not.
Span* PageHeap::grow(std::size_t pages, From from) noexcept {
  std::size_t begin = top_;
  if (top_ != 0 && page_map.spans[top_ - 1].state == SpanState::free) {
    Span* const last = page_map.spans + top_ - page_map.spans[top_ - 1].pages;
    if (from != From::clean || last->zeroed) {
      begin = first_page_of(last);
      // It may be long enough, because find() does not search a whole list.
      if (last->pages >= pages) {
        unlink_free(last);
        return last;
      }
    }
  }
  if (!commit(begin + pages)) return nullptr;
  Span* const span = page_map.spans + begin;
  bool zeroed = true;
  if (begin != top_) {
    zeroed = span->zeroed;
    unlink_free(span);
  }
  span->pages = static_cast<std::uint32_t>(pages);
  span->zeroed = zeroed;
  move_end(begin + pages);
  ++grow_calls_;
  if constexpr (counting) count_event(Event::growth_calls);
  return span;
}

// Chooses what to purge before `pages` more may be touched, if purging can make enough room.
[[gnu::cold]] void PageHeap::make_room(std::size_t pages) noexcept {
  const std::size_t needed = in_use() + pages;
  if (needed > limit_pages_) return;
  choose_purges(limit_pages_ - needed, 1, no_limit);
  policy_.note_dirty(dirty_.pages());
}

bool PageHeap::has_room(std::size_t pages) noexcept {
  {
    const Guard guard{lock_};
    if (is_room_for(pages)) return true;
    make_room(pages);
  }
  send_purges();
  const Guard guard{lock_};
  return is_room_for(pages);
}

bool PageHeap::wait_for_purge(std::uint32_t& ended_purges) noexcept {
  {
    const Guard guard{lock_};
    if (purging_pages_ == 0 && ended_purges == this->ended_purges()) return false;
    ++waiting_for_purges_;
  }
  os::wait_for(purges_, ended_purges, 1);  // returns at once if one has ended
  const Guard guard{lock_};
  ended_purges = this->ended_purges();
  if (waiting_for_purges_ != 0) --waiting_for_purges_;  // 0 in the child of a fork
  return true;
}

std::size_t PageHeap::touched_pages() noexcept {
  const Guard guard{lock_};
  return touched();
}

std::size_t PageHeap::dirty_pages() noexcept {
  const Guard guard{lock_};
  return dirty_.pages();
}

void PageHeap::limit(std::size_t soft_bytes, std::size_t hard_bytes) noexcept {
  const Guard guard{lock_};
  soft_limit_bytes_ = soft_bytes;
  hard_limit_bytes_ = hard_bytes;
  limit_pages_ = hard_bytes == no_limit ? no_limit : hard_bytes / page_bytes;
  is_limited_.store(hard_bytes != no_limit, std::memory_order_relaxed);
}

std::uint32_t PageHeap::new_heap(std::uint32_t spare) noexcept {
  const Guard guard{lock_};
  const std::uint32_t number = page_map.heap_count.load(std::memory_order_relaxed) + 1;
  if (!range_.add_heap(number + spare)) return 0;
  page_map.heap_count.store(number, std::memory_order_relaxed);
  return number;
}

}  // namespace ts::engine
