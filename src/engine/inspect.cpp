#include "engine/inspect.h"

#include <algorithm>

#include "engine/block_set.h"
#include "engine/current_heap.h"
#include "engine/housekeeping.h"
#include "engine/slab_purge.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// The blocks in the calling thread's bins.
std::size_t own_bin_bytes() noexcept {
  std::size_t bytes = 0;
  for (unsigned c = 1; c < class_count; ++c) {
    const Block* block = current_heap->bins[c].head;
    for (std::uint32_t left = max_in_bin; block != nullptr && left != 0; --left) {
      bytes += size_classes[c].block_bytes;
      block = block->next;
    }
  }
  return bytes;
}

bool walk_slab(const Span& slab, BlockVisitor visit, void* argument) noexcept {
  const SizeClass& c = size_classes[slab.size_class];
  BlockSet free{slab};
  BlockSet cached{slab};
  free.add_list(slab.free_list);
  for (std::size_t i = 0; i * 64 < slab.slab_blocks; ++i)
    cached.add_word(i, remote_word_of(&slab, i).load(std::memory_order_relaxed));
  for_each_heap([&](const ThreadHeap& heap) {
    cached.add_list(heap.bins[slab.size_class].head);
    for (const RemoteBatch& batch : heap.batches) {
      if (batch.slab == &slab) cached.add_word(batch.word, batch.bits);
    }
  });
  for (std::uint32_t i = 0; i < slab.carved; ++i) {
    const bool is_free = free.contains(i) || is_purged(slab, i);
    const BlockState state = is_free              ? BlockState::free
                             : cached.contains(i) ? BlockState::cached
                                                  : BlockState::used;
    if (!visit({block_at(slab, i), c.block_bytes, state, heap_number(span_entry(slab))}, argument))
      return false;
  }
  return true;
}

// Of a span that is no slab. A large one without an entry is in a span cache.
BlockState state_of(const Span& span) noexcept {
  if (span.state == SpanState::free) return BlockState::free;
  return span_entry(span) == 0 ? BlockState::cached : BlockState::used;
}

}  // namespace

HeapMeasures measure() noexcept {
  HeapMeasures measures;
  const std::size_t cached = own_bin_bytes();
  const PageHeap::Totals totals = page_heap.totals();
  measures.segment_bytes = totals.segment_bytes;
  measures.grow_calls = totals.grow_calls;
  measures.heaps = totals.heaps;
  measures.table_bytes = totals.table_bytes;
  measures.chunks = measures.segment_bytes != 0 ? 1 : 0;
  measures.free_bytes = measures.cached_bytes = cached;
  page_heap.for_each([&](const Span& span) {
    if (span.state == SpanState::free) {
      measures.free_bytes += span.pages * page_bytes;
      measures.returned_bytes += span.zeroed ? span.pages * page_bytes : 0;
      ++measures.free_blocks;
    } else if (span.state == SpanState::slab) {
      const SizeClass& c = size_classes[span.size_class];
      const std::size_t used = span.used.load(std::memory_order_relaxed);
      const std::size_t free = span.pages * page_bytes - used * c.block_bytes;
      measures.free_bytes += free;
      measures.slab_bytes += free;
      measures.waiting_bytes += std::size_t{c.block_bytes} *
                                remote_frees_of(&span).pending.load(std::memory_order_relaxed);
      measures.free_blocks += span.slab_blocks - std::min<std::size_t>(used, span.slab_blocks);
    }
  });
  const std::size_t purged = std::min(
      purged_os_pages.load(std::memory_order_relaxed) * os::page_bytes(), measures.slab_bytes);
  measures.slab_bytes -= purged;
  measures.returned_bytes += purged;
  return measures.bounded();
}

bool walk_blocks(BlockVisitor visit, void* argument) noexcept {
  const Guard guard{housekeeping_lock};
  bool goes_on = true;
  page_heap.for_each([&](const Span& span) {
    if (!goes_on) return;
    if (span.state == SpanState::slab) {
      goes_on = walk_slab(span, visit, argument);
    } else {
      goes_on = visit({memory_of(&span), span.pages * page_bytes, state_of(span), 0}, argument);
    }
  });
  return goes_on;
}

}  // namespace ts::engine
