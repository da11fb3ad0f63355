#include "engine/large_blocks.h"

#include <cerrno>

#include "base/check.h"
#include "base/event_counts.h"
#include "engine/huge_pages.h"
#include "engine/misuse.h"
#include "engine/page_heap.h"
#include "engine/thread_heap.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// From here on, giving pages another address is cheaper than copying them (docs/engine.md).
constexpr std::size_t min_move_bytes = std::size_t{256} << 10;

// Each move may cut mappings into more pieces, of which a process may have about 65,000.
constexpr std::uint32_t max_moves = 8192;
constinit std::atomic<std::uint32_t> moves{0};  // relaxed: a count, and nothing hangs on it

Span& span_of(const void* p) noexcept { return layout.spans[granule_of(p)]; }

std::uint32_t usable_granules(const Span& span) noexcept {
  return span.used.load(std::memory_order_relaxed);  // changed by who may call realloc, only
}
void set_usable_granules(Span& span, std::size_t granules) noexcept {
  span.used.store(static_cast<std::uint32_t>(granules), std::memory_order_relaxed);
}

void* begin_block(Span& span, std::size_t granules) noexcept {
  set_usable_granules(span, granules);
  layout.map[number_of(&span)].store(large_entry, std::memory_order_relaxed);
  return memory_of(&span);
}

std::size_t at_least_one(std::size_t granules) noexcept { return granules == 0 ? 1 : granules; }

// Takes the block from the map. Of two threads that free it, one succeeds, and the other is told;
// and neither harms whoever has the memory next.
bool claim(const void* p) noexcept {
  Entry entry = large_entry;
  return layout.map[granule_of(p)].compare_exchange_strong(entry, 0, std::memory_order_relaxed);
}

bool begins_granule(const void* p) noexcept { return address_of(p) % granule_bytes == 0; }

// The fewer threads there are, the more spans each may keep.
std::uint32_t most_kept() noexcept {
  const std::uint32_t heaps = layout.heap_count.load(std::memory_order_relaxed);
  return heaps <= 4 ? 4 : heaps <= 16 ? 1 : 0;
}

// What the calling thread keeps of the length; null if nothing.
KeptSpans* kept_spans(std::size_t granules) noexcept {
  const std::size_t index = granules - min_kept_granules;
  return index < kept_lengths && has_heap() ? &own_heap().kept[index] : nullptr;
}

}  // namespace

void* allocate_large(std::size_t bytes, std::size_t alignment, bool* zeroed) noexcept {
  // Far beyond any range, and far from overflowing.
  if (bytes > address_limit || alignment > address_limit) return out_of_memory();
  const std::size_t granules = at_least_one(granules_for(bytes));
  const std::size_t multiple = at_least_one(alignment / granule_bytes);
  if (KeptSpans* const kept = kept_spans(granules);
      kept != nullptr && kept->head != nullptr && multiple == 1) {
    if constexpr (counting) count_event(Event::large_allocations);
    Span& span = *kept->head;
    kept->head = span.next;
    --kept->count;
    return begin_block(span, granules);
  }
  Span* const span = allocate_span(granules, multiple, 0);
  if (span == nullptr) return out_of_memory();
  if constexpr (counting) count_event(Event::large_allocations);
  if (span->zeroed) choose_page_size(*span, multiple);
  if (zeroed != nullptr) *zeroed = span->zeroed;
  return begin_block(*span, granules);
}

void release_large(void* p, Entry entry) noexcept {
  if (entry != large_entry || !begins_granule(p) || !claim(p)) [[unlikely]]
    return static_cast<void>(report_stray(p, FoundBy::free));
  Span& span = span_of(p);
  note_release(span);
  KeptSpans* const kept = kept_spans(span.granules);
  if (kept == nullptr || kept->count >= most_kept()) return page_heap.release(&span);
  span.next = kept->head;
  // release: as put_before()
  std::atomic_ref<Span*>{kept->head}.store(&span, std::memory_order_release);
  ++kept->count;
}

void release_kept(ThreadHeap& heap) noexcept {
  for (KeptSpans& kept : heap.kept) {
    while (Span* const span = kept.head) {
      kept.head = span->next;
      page_heap.release(span);
    }
    kept.count = 0;
  }
}

bool resize_large(void* p, std::size_t bytes) noexcept {
  if (!begins_granule(p)) [[unlikely]]
    return false;  // no block: the caller finds out
  Span& span = span_of(p);
  const std::size_t granules = granules_for(bytes);
  const std::size_t now = usable_granules(span);
  if (granules == now) return true;
  // Into its tail; or by what lies behind it; or without what it no longer needs, tail and all.
  const bool in_tail = granules > now && granules <= span.granules;
  if (!in_tail && !page_heap.resize(&span, granules)) return false;
  set_usable_granules(span, granules);
  return true;
}

void* move_large(void* p, std::size_t bytes) noexcept {
  Span& old = span_of(p);
  const std::size_t old_bytes = usable_large(p);
  if (old_bytes < min_move_bytes || bytes <= old_bytes || bytes > address_limit) return nullptr;
  if (moves.load(std::memory_order_relaxed) >= max_moves) return nullptr;
  // What grows once tends to grow again: half as much again as address space.
  const std::size_t granules = granules_for(bytes);
  const auto allocate_clean = [](std::size_t count) {
    return page_heap.allocate(count, 1, 0, PageHeap::From::clean);
  };
  Span* span = allocate_clean(granules + granules / 2);
  if (span == nullptr) span = allocate_clean(granules);
  if (span == nullptr) return nullptr;
  note_release(old);
  if (!os::move_pages(p, memory_of(span), old_bytes)) {
    // The span stays in use for good, and no other will.
    moves.store(max_moves, std::memory_order_relaxed);
    return nullptr;
  }
  moves.fetch_add(1, std::memory_order_relaxed);
  if constexpr (counting) count_event(Event::large_moves);
  void* const moved = begin_block(*span, granules);
  if (claim(p)) page_heap.release_clean(&old);
  return moved;
}

std::size_t usable_large(const void* p) noexcept {
  return std::size_t{usable_granules(span_of(p))} * granule_bytes;
}

}  // namespace ts::engine
