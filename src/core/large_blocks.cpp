#include "core/large_blocks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/event_counts.h"
#include "core/attention.h"
#include "core/colours.h"
#include "core/deferred_work.h"
#include "core/hooks.h"
#include "core/large_memory.h"
#include "core/misuse.h"
#include "core/page_heap.h"
#include "core/span_supply.h"
#include "os/options.h"
#include "os/os.h"
#include "os/touched_pages.h"

namespace ts::engine {
namespace {

// From this size on, moving pages to another address is cheaper than copying them.
constexpr std::size_t min_move_bytes = std::size_t{256} << 10;

constexpr std::size_t min_move_pages = pages_for(min_move_bytes);

// From this size on, discarding pages is cheaper than writing zeros, which makes them all resident.
constexpr std::size_t min_discarded_pages = pages_for(std::size_t{4} << 20);

Span& span_of(const void* p) noexcept { return page_map.spans[page_of(p)]; }

// Also updates the page map, which other processes read.
void set_usable_pages(Span& span, std::size_t pages) noexcept {
  const auto usable = static_cast<std::uint32_t>(pages);
  span.usable_pages.store(usable, std::memory_order_relaxed);
  MapPage* const in_map = page_map.pages + first_page_of(&span);
  in_map[0].slab_begin = usable;
  if (span.pages == usable) [[likely]]
    return;
  in_map[0].slab_begin = span.pages | has_tail;
  in_map[1].slab_begin = usable;
}

// The span's usable pages and colour must be set.
void* begin_in_map(Span& span, std::size_t colour) noexcept {
  page_map.pages[first_page_of(&span)].entry.store(large_entry, std::memory_order_relaxed);
  return memory_of(&span) + colour;
}
[[gnu::noinline]] void* begin_block_of_arena(Span& span, std::size_t colour) noexcept {
  hooks::large_block_begins(span);
  return begin_in_map(span, colour);
}
// The span's usable pages must be set.
void* begin_block(Span& span, std::size_t colour) noexcept {
  set_colour(span, colour);
  return has_threads_heap() ? begin_in_map(span, colour) : begin_block_of_arena(span, colour);
}

std::size_t at_least_one(std::size_t pages) noexcept { return pages == 0 ? 1 : pages; }

// True also for a thread without a heap.
bool may_sample() noexcept { return is_sampling(*this_thread.heap); }

// To be called when a block leaves the page map.
void forget(Span& span) noexcept {
  // relaxed: only the block's allocation and its release change it between 0 and another value
  if (span.arena.load(std::memory_order_relaxed) != 0) [[unlikely]]
    hooks::large_block_ends(span);
}

// To be called when a block was allocated or resized while large blocks are sampled. An arena's
// block is never sampled, whatever scope the thread is in.
[[gnu::cold, gnu::noinline]] void maybe_sample(void* p, std::size_t bytes,
                                               const void* caller = nullptr) noexcept {
  if (p == nullptr || is_in_scope()) return;
  Span& span = span_of(p);
  if (is_large_sample(span)) hooks::large_block_ends(span);
  // relaxed: as in forget()
  if (span.arena.load(std::memory_order_relaxed) != 0) return;
  hooks::large_block_sampled(p, bytes, caller);
}

// Removes the block from the page map. If two threads free it, only one succeeds, and the other
// does not harm the next block there.
bool take_from_map(std::size_t page) noexcept {
  PageMapEntry entry = large_entry;
  return page_map.pages[page].entry.compare_exchange_strong(entry, 0, std::memory_order_relaxed);
}

// Makes a span in use, which begins at an OS page, read as zero; false if the system refuses.
bool discard_dirty(const Span& span, std::size_t pages) noexcept {
  const std::size_t whole = align_down(pages, page_map.pages_per_os_page);
  if (!os::discard(memory_of(&span), whole * page_bytes)) return false;
  std::memset(memory_of(&span) + whole * page_bytes, 0, (pages - whole) * page_bytes);
  return true;
}

// Allocates a large block from the page heap.
[[gnu::noinline]] void* allocate_from_page_heap(std::size_t bytes, std::size_t alignment,
                                                bool* zeroed) noexcept {
  const std::size_t room = colour_room(bytes, alignment);
  const std::size_t pages = at_least_one(pages_for(bytes + room));
  std::size_t multiple = at_least_one(alignment / page_bytes);
  // Only whole OS pages can be moved, and returned to the system.
  if (pages >= min_move_pages) multiple = std::max(multiple, page_map.pages_per_os_page);
  Span* const span = allocate_span(pages, multiple, 0);
  if (span == nullptr) return out_of_memory();
  if (needs_attention()) [[unlikely]]
    hooks::attend();
  if constexpr (counting) count_event(Event::large_allocations);
  if (zeroed != nullptr && !span->zeroed && pages >= min_discarded_pages)
    span->zeroed = discard_dirty(*span, pages);
  if (span->zeroed) hooks::fresh_large_block(*span, multiple);
  if (zeroed != nullptr) *zeroed = span->zeroed;
  set_usable_pages(*span, pages);
  void* const p = begin_block(*span, room != 0 ? pick_colour(*span) : 0);
  send_purges_if_any();
  return p;
}

[[gnu::cold, gnu::noinline]] void* allocate_and_sample(std::size_t bytes, std::size_t alignment,
                                                       bool* zeroed) noexcept {
  void* const p = allocate_from_page_heap(bytes, alignment, zeroed);
  maybe_sample(p, bytes, __builtin_return_address(0));  // the last call of malloc
  return p;
}

}  // namespace

void* allocate_large(std::size_t bytes, std::size_t alignment, bool* zeroed) noexcept {
  // Far beyond any range, but too small to overflow.
  if (bytes > address_limit || alignment > address_limit) return out_of_memory();
  if (may_sample()) [[unlikely]]
    return allocate_and_sample(bytes, alignment, zeroed);
  return allocate_from_page_heap(bytes, alignment, zeroed);
}

void release_large(void* p, std::size_t page) noexcept {
  Span& span = page_map.spans[page];
  if (!is_large_block(p, span) || !take_from_map(page)) [[unlikely]]
    return static_cast<void>(report_invalid_pointer(p, FoundBy::free));
  const int saved_errno = errno;
  forget(span);
  hooks::before_large_release(span);
  const std::size_t dirty = may_be_sparse(span.pages) ? discard_untouched(span) : span.pages;
  dirty == span.pages ? page_heap.release(&span) : page_heap.release_clean(&span, dirty);
  send_purges_if_any();
  errno = saved_errno;
}

bool resize_large(void* p, std::size_t bytes) noexcept {
  Span& span = span_of(p);
  if (!is_large_block(p, span)) [[unlikely]]
    return false;  // not a block: realloc reports it
  const std::size_t pages = pages_for(bytes + room_of(colour_of(span)));
  const std::size_t now = usable_pages(span);
  if (pages == now) return true;
  // Grows into its tail, or by the pages after it; or shrinks, and loses the tail as well.
  const bool in_tail = pages > now && pages <= span.pages;
  if (pages > AddressRange::max_pages) return false;
  if (pages > span.pages) hooks::before_growth(pages - span.pages);
  const bool can_move = pages > span.pages && now >= min_move_pages && may_move();
  if (!in_tail && !page_heap.resize(&span, pages, can_move)) return false;  // realloc continues
  set_usable_pages(span, pages);
  if (may_sample()) maybe_sample(p, bytes);  // as after a free
  send_purges_if_any();
  return true;
}

namespace {

// Copying into touched memory is cheaper than the page faults that follow a move, and touches no
// other memory. False for a block that the program has not filled; for one that grows by little,
// where copies would add up; and for a locked one, whose old memory would stay locked forever.
bool copying_is_cheaper(const Span& old, std::size_t old_bytes, std::size_t pages) noexcept {
  constexpr std::size_t looked_at = 4;
  return pages * page_bytes - old_bytes >= old_bytes / 4 && page_heap.has_dirty(pages) &&
         touched_pages(memory_of(&old), old_bytes, looked_at) == looked_at &&
         !os::is_locked(memory_of(&old), old_bytes);
}

// Allocates a span for a block that moves and needs `more` pages. A block that grew once tends to
// grow again: the span has half as much again as address space, or an eighth under a hard limit, to
// which it counts.
Span* allocate_to_move(std::size_t pages, std::size_t more) noexcept {
  hooks::before_growth(more);
  const SizeOption limit = current_options.hard_limit;
  const bool is_limited = !limit.is_word();
  const std::size_t tail = is_limited ? pages / 8 : pages / 2;
  const bool has_tail = !is_limited || page_heap.has_room(more + tail);
  if (!has_tail && !page_heap.has_room(more)) return nullptr;
  const auto allocate_clean = [](std::size_t count) {
    return page_heap.allocate(count, page_map.pages_per_os_page, 0, PageHeap::From::clean);
  };
  Span* const span = has_tail ? allocate_clean(pages + tail) : nullptr;
  return span != nullptr ? span : allocate_clean(pages);
}

}  // namespace

void* move_large(void* p, std::size_t bytes) noexcept {
  Span& old = span_of(p);
  const std::size_t old_bytes = usable_pages(old) * page_bytes;
  if (old_bytes < min_move_bytes || bytes <= usable_large(p) || bytes > address_limit)
    return nullptr;
  const std::size_t os_multiple = page_map.pages_per_os_page;
  if (first_page_of(&old) % os_multiple != 0) return nullptr;  // a short block that has grown
  // The pages move as they are, so the block keeps its colour.
  const std::size_t pages = pages_for(bytes + room_of(colour_of(old)));
  if (pages > AddressRange::max_pages || !begin_move() || copying_is_cheaper(old, old_bytes, pages))
    return nullptr;
  Span* const span = allocate_to_move(pages, pages - old.pages);
  if (span == nullptr) return nullptr;
  hooks::before_large_release(old);
  const std::size_t moved_bytes = align_down(old_bytes, os_multiple * page_bytes);
  // Whole OS pages, as the block begins at one. What has lost its pages and is not unmapped stays
  // in use.
  const std::size_t most_bytes = align_down(std::size_t{span->pages}, os_multiple) * page_bytes;
  bool is_left = false;
  if (!os::move_pages(memory_of(&old), moved_bytes, memory_of(span), most_bytes, is_left)) {
    if (is_left) {
      hooks::fresh_memory(memory_of(span), most_bytes, false);  // it may be a new mapping
      page_heap.release_clean(span);
    } else {
      span->usable_pages.store(span->pages, std::memory_order_relaxed);  // stays in use
    }
    return nullptr;
  }
  if (is_left) {
    // It has no pages left. This informs caches of registered memory that do not know mremap(2).
    os::discard(memory_of(&old), moved_bytes);
    hooks::fresh_memory(memory_of(&old), moved_bytes, false);  // likewise
    is_left = merge_mappings(memory_of(&old), moved_bytes);
  }
  if constexpr (counting) count_event(Event::large_moves);
  set_usable_pages(*span, pages);
  void* const moved = begin_block(*span, colour_of(old));
  // The rest shares an OS page with the memory after the block.
  const std::size_t rest = old_bytes - moved_bytes;
  if (rest != 0) std::memcpy(memory_of(span) + moved_bytes, memory_of(&old) + moved_bytes, rest);
  if (may_sample()) maybe_sample(moved, bytes);
  if (!take_from_map(page_of(p))) return moved;
  forget(old);
  if (!is_left) return moved;
  rest == 0 ? page_heap.release_clean(&old) : page_heap.release(&old);
  send_purges_if_any();
  return moved;
}

std::size_t usable_large(const void* p) noexcept { return usable_bytes_of(span_of(p)); }

}  // namespace ts::engine
