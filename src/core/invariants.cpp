#include "core/invariants.h"

#include <bit>

#include "base/check.h"
#include "core/colours.h"
#include "core/heap_invariants.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/large_blocks.h"
#include "core/page_heap.h"
#include "core/reclaim.h"
#include "core/slabs.h"
#include "os/os.h"

namespace ts::engine {

// ---- the page heap ----

Fault PageHeap::find_fault() noexcept {
  const Guard guard{lock_};
  std::size_t dirty = 0;
  std::size_t clean = 0;
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
    free_before = is_free ? &span : nullptr;
    i += span.pages;
  }
  if (dirty != dirty_.pages() || clean != clean_.pages())
    return {"free pages are those in the lists", nullptr};
  if (top_ > committed_ || committed_ > range_.pages())
    return {"pages in use are committed, and committed pages have addresses", nullptr};
  if (const Fault fault = dirty_.find_fault(false)) return fault;
  return clean_.find_fault(true);
}

// ---- the engine ----

namespace {

// Checks a slab against its owner, and its remote frees.
Fault find_owned_slab_fault(const Span& slab) noexcept {
  const PageMapEntry entry = span_entry(slab);
  if (!is_of_slab(entry)) return {"a slab has an owner", &slab};
  const ThreadHeap& owner = *heap_of(entry);
  if (heap_number(entry) > page_map.heap_count.load(std::memory_order_relaxed) ||
      entry_of_heap(owner) >> heap_shift != entry >> heap_shift)
    return {"a slab's owner exists", &slab};
  if (const Fault fault = find_slab_fault(owner, slab)) return fault;
  std::uint32_t bits = 0;
  for (std::uint32_t first = 0; first < slab.slab_blocks; first += 64) {
    const std::uint64_t word = remote_word_of(&slab, first / 64).load(std::memory_order_relaxed);
    bits += static_cast<std::uint32_t>(std::popcount(word));
    if ((word & free_word(slab, first / 64)) != 0)
      return {"pending frees are of blocks that are not free", &slab};
  }
  const std::uint32_t pending = remote_frees_of(&slab).pending.load(std::memory_order_relaxed);
  if (bits > pending && !are_close(owner, bits, pending))
    return {"at most as many bits are set as frees are pending", &slab};
  if (pending > used(slab)) return {"pending blocks count as used", &slab};
  return find_count_fault(owner, slab, std::int64_t{pending} - bits);
}

// Checks that the stack has each slab once, and all slabs with pending frees. Counts them in
// `ready`.
Fault find_ready_fault(const ThreadHeap& heap, std::size_t& ready) noexcept {
  for (const Span* slab = heap.ready.load(std::memory_order_relaxed); slab != nullptr;
       slab = remote_frees_of(slab).next_ready) {
    if (!is_own(heap, span_entry(*slab))) return {"a stack of ready slabs has its heap's", slab};
    if (remote_frees_of(slab).pending.load(std::memory_order_relaxed) == 0)
      return {"a ready slab has pending frees", slab};
    if (ready-- == 0) return {"a slab is ready once", slab};
  }
  return {};
}

// Counts the slabs of all heaps in the page heap.
struct SlabCensus {
  Fault fault;
  std::size_t ready = 0;    // slabs with pending frees
  std::uint64_t slabs = 0;  // of all heaps
  std::uint64_t listed = 0;
  std::uint64_t large_of_arenas = 0;
  std::uint64_t large_samples = 0;
};

Fault find_large_fault(const Span& span) noexcept {
  const PageMapEntry entry = span_entry(span);
  if (entry != 0 && entry != large_entry)
    return {"a large block's first page has large_entry", &span};
  const std::uint32_t usable = span.usable_pages.load(std::memory_order_relaxed);
  if (usable > span.pages) return {"usable_pages <= pages", &span};
  const std::size_t colour = colour_of(span);
  if (colour > max_colour || colour % line_bytes != 0)
    return {"a large block begins with a line of its first OS page", &span};
  const MapPage* const pages = page_map.pages + first_page_of(&span);
  const bool has_no_tail = usable == span.pages;
  if (entry != 0 && (pages[0].slab_begin != (has_no_tail ? usable : span.pages | has_tail) ||
                     (!has_no_tail && pages[1].slab_begin != usable)))
    return {"a large block's length is in the page map", &span};
  for (std::size_t i = 1; i < span.pages; ++i) {
    if (page_map.pages[first_page_of(&span) + i].entry.load(std::memory_order_relaxed) != 0)
      return {"further pages of a large block have no entry", &span + i};
  }
  return {};
}

// Checks the list of the arena's large blocks. `left` counts down the large blocks of all arenas.
Fault find_large_list_fault(const ThreadHeap& arena, std::uint64_t& left) noexcept {
  const Span* before = nullptr;
  for (const Span* span = arena.large_blocks; span != nullptr; before = span, span = span->next) {
    if (span->state != SpanState::large || span_entry(*span) != large_entry ||
        span->arena.load(std::memory_order_relaxed) != heap_number(entry_of_heap(arena)))
      return {"an arena's list has its large blocks", span};
    if (span->previous != before)
      return {"an arena's large blocks are linked in both directions", span};
    --left;
  }
  return {};
}

SlabCensus take_census() noexcept {
  SlabCensus census;
  page_heap.for_each([&](const Span& span) {
    if (census.fault) return;
    if (span.state == SpanState::slab) {
      census.fault = find_owned_slab_fault(span);
      ++census.slabs;
      census.listed += is_listed(span) ? 1 : 0;
      if (remote_frees_of(&span).pending.load(std::memory_order_relaxed) != 0) ++census.ready;
    } else if (span.state == SpanState::large) {
      census.fault = find_large_fault(span);
      if (is_large_sample(span)) {
        ++census.large_samples;
      } else if (span.arena.load(std::memory_order_relaxed) != 0) {
        ++census.large_of_arenas;
      }
    }
  });
  return census;
}

}  // namespace

Fault find_engine_fault() noexcept TS_NO_ANALYSIS {
  const Guard guard{background_lock};
  if (const Fault fault = page_heap.find_fault()) return fault;
  SlabCensus census = take_census();
  if (census.fault) return census.fault;
  Fault fault;
  for_each_heap([&](ThreadHeap& heap) TS_NO_ANALYSIS {
    if (fault) return;
    fault = find_heap_fault(heap);
    for (unsigned c = 1; c < class_count; ++c) {
      census.slabs -= heap.slabs[c];
      for (const Span* slab = heap.partial[c]; slab != nullptr; slab = slab->next) --census.listed;
    }
    if (!fault) fault = find_ready_fault(heap, census.ready);
    if (!fault) fault = find_large_list_fault(heap, census.large_of_arenas);
  });
  if (fault) return fault;
  if (census.ready != 0) return {"each slab with pending frees is on its owner's stack", nullptr};
  if (census.slabs != 0) return {"heaps count all slabs", nullptr};
  if (census.large_of_arenas != 0) return {"each large block of an arena is in its list", nullptr};
  if (const Fault found = hooks::find_fault(census.large_samples)) return found;
  if (census.listed != 0) return {"each listed slab is in its heap's list", nullptr};
  return find_abandoned_fault();
}

void check_slow_path(ThreadHeap& heap) noexcept {
  // The time of a check is proportional to the number of pages. One check per this many calls and
  // pages keeps its share of the time fixed.
  constexpr std::size_t pages_per_call = 1024;  // 16 MiB
  constexpr std::size_t calls_per_check = debug_level >= 3 ? 1 : 256;
  static constinit std::atomic<std::size_t> calls{0};  // relaxed: any call may be the one
  const std::size_t pages = page_map.page_count.load(std::memory_order_relaxed);
  const std::size_t interval = calls_per_check * (1 + pages / pages_per_call);
  if (calls.fetch_add(1, std::memory_order_relaxed) % interval != 0) return;
  check_at_rest(heap);
  // Even with one thread, the engine is not at rest while that thread visits blocks under the lock.
  const bool is_at_rest = os::has_one_thread() && !background_lock.is_locked();
  const Fault fault = is_at_rest ? find_engine_fault() : page_heap.find_fault();
  require(!fault, fault.equation, fault.where);
}

}  // namespace ts::engine
