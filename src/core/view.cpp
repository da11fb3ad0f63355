#include "core/view.h"

#include <algorithm>

#include "core/colours.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/large_blocks.h"
#include "core/racy_read.h"
#include "core/spare_lists.h"
#include "core/sparse_slabs.h"
#include "os/os.h"

namespace ts::engine {
namespace {

// A set of blocks of one slab: one bit for each, by number.
class BlockSet {
 public:
  explicit BlockSet(const Span& slab) noexcept
      : begin_{memory_of(&slab)},
        block_bytes_{size_classes[slab.size_class].block_bytes},
        blocks_{slab.slab_blocks} {}

  // Ignores blocks of other slabs.
  void add_list(const Block* block) noexcept {
    for (std::uint32_t left = max_in_bin; block != nullptr && left != 0;
         block = block->next, --left) {
      const std::size_t offset = address_of(block) - address_of(begin_);
      const std::size_t number = offset / block_bytes_;
      if (number < blocks_) add(number);
    }
  }
  void add(std::size_t number) noexcept { add_word(number / 64, std::uint64_t{1} << number % 64); }
  void add_word(std::size_t index, std::uint64_t word) noexcept { words_[index] |= word; }
  bool contains(std::size_t number) const noexcept {
    return (words_[number / 64] >> number % 64 & 1) != 0;
  }

 private:
  const std::byte* begin_;
  std::size_t block_bytes_;
  std::size_t blocks_;
  std::uint64_t words_[max_slab_blocks / 64] = {};
};

// Bytes of the blocks in a heap's bins and batches.
std::size_t bytes_aside(const ThreadHeap& heap) noexcept {
  std::size_t bytes =
      bytes_in_bins(heap.bins, heap.capacities) + bytes_in_spare_lists(heap, heap.has_wide_bins);
  if (racy_read(heap.has_sampling_bins))
    bytes += bytes_in_bins(heap.sampling_bins, heap.sampling_capacities);
  for (const RemoteBatch& batch : heap.batches) {
    const Span* const slab = racy_read(batch.slab);
    const std::uint32_t blocks = racy_read(batch.count);
    if (slab != nullptr && blocks <= 64)
      bytes += blocks * std::size_t{size_classes[racy_read(slab->size_class)].block_bytes};
  }
  return bytes;
}

void add_slab(const Span& slab, HeapMeasures& measures) noexcept {
  const SizeClass& c = size_classes[slab.size_class];
  const std::size_t bytes = slab.pages * page_bytes;
  const std::size_t in_use = used(slab);
  const std::size_t free = bytes - std::min(in_use * c.block_bytes, bytes);
  const std::size_t returned = std::min(purged_bytes_of(slab), free);
  measures.free_bytes += free;
  const PageMapEntry entry = span_entry(slab);
  const bool is_ended = entry >= heap_unit && is_abandoned(*heap_of(entry));
  (is_ended ? measures.ended_bytes : measures.slab_bytes) += free - returned;
  measures.returned_bytes += returned;
  measures.waiting_bytes +=
      std::size_t{c.block_bytes} * remote_frees_of(&slab).pending.load(std::memory_order_relaxed);
  measures.free_blocks += slab.slab_blocks - std::min<std::size_t>(in_use, slab.slab_blocks);
}

void add_span(const Span& span, HeapMeasures& measures) noexcept {
  const std::size_t bytes = span.pages * page_bytes;
  if (span.state == SpanState::slab) return add_slab(span, measures);
  if (span.state == SpanState::large && span_entry(span) != 0) {
    measures.large_bytes += bytes;
  } else {
    measures.free_bytes += bytes;
    measures.returned_bytes += span.state == SpanState::free && span.zeroed ? bytes : 0;
    ++measures.free_blocks;
  }
}

bool walk_slab(const Span& slab, BlockVisitor visit, void* argument) noexcept {
  const SizeClass& c = size_classes[slab.size_class];
  const std::uint32_t owner = heap_number(span_entry(slab));
  const std::uint32_t carved = slab.carved;
  BlockSet free{slab};
  BlockSet cached{slab};
  for (std::size_t i = 0; i < words_of(slab); ++i) {
    free.add_word(i, free_word(slab, i));
    cached.add_word(i, remote_word_of(&slab, i).load(std::memory_order_relaxed));
  }
  for_each_heap([&](const ThreadHeap& heap) {
    cached.add_list(first_block(heap.bins[slab.size_class]));
    for_each_spare_list(heap, [&](const Block* first, unsigned size_class) {
      if (size_class == slab.size_class) cached.add_list(first);
    });
    if (heap.has_sampling_bins) cached.add_list(heap.sampling_bins[slab.size_class].head);
    for (const RemoteBatch& batch : heap.batches) {
      if (batch.slab == &slab) cached.add_word(batch.word, batch.bits);
    }
  });
  for (std::uint32_t i = 0; i < carved; ++i) {
    const BlockState state = free.contains(i)     ? BlockState::free
                             : cached.contains(i) ? BlockState::cached
                                                  : BlockState::used;
    if (!visit({memory_of(&slab) + std::size_t{i} * c.block_bytes, c.block_bytes, state, owner},
               argument))
      return false;
  }
  return true;
}

// A copy of all spans, as they were at one moment, in a mapping of its own: a walk's visitor may
// call the engine.
class Spans {
 public:
  Spans() noexcept {
    while (!take() && bytes_ != 0) continue;
  }
  ~Spans() { unmap(); }
  Spans(const Spans&) = delete;
  Spans& operator=(const Spans&) = delete;

  bool are_taken() const noexcept { return is_complete_; }
  const MapExtent* begin() const noexcept { return extents_; }
  const MapExtent* end() const noexcept { return extents_ + count_; }

 private:
  void unmap() noexcept {
    if (extents_ != nullptr) os::unmap_unused(extents_, bytes_);
  }

  // False if there is no memory, or the mapping, sized before taking the lock, is too short.
  bool take() noexcept {
    std::size_t spans = 0;
    page_heap.for_each([&](const Span&) { ++spans; });
    constexpr std::size_t margin = 64;
    unmap();
    bytes_ = align_up((spans + margin) * sizeof(MapExtent), os::page_bytes());
    extents_ = static_cast<MapExtent*>(os::map(bytes_));
    if (extents_ == nullptr) bytes_ = 0;
    const std::size_t most = bytes_ / sizeof(MapExtent);
    count_ = 0;
    is_complete_ = extents_ != nullptr;
    page_heap.for_each([&](const Span& span) {
      is_complete_ = is_complete_ && count_ < most;
      if (is_complete_) extents_[count_++] = map_extent_of(span);
    });
    return is_complete_;
  }

  MapExtent* extents_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t count_ = 0;
  bool is_complete_ = false;
};

const Span& span_at(const MapExtent& extent) noexcept {
  return page_map.spans[page_of(reinterpret_cast<const void*>(extent.address))];
}

// Whether the span still exists: the visitor may free its blocks, or destroy an arena. (A page in
// the middle of another span has an obsolete descriptor.)
bool is_there(const MapExtent& extent) noexcept {
  const Span& span = span_at(extent);
  const MapExtent now = map_extent_of(span);
  if (now.state != extent.state || now.bytes != extent.bytes || now.owner != extent.owner ||
      now.block_bytes != extent.block_bytes)
    return false;
  if (extent.state == MapState::used) return span_entry(span) == large_entry;
  const auto begin = static_cast<std::uint32_t>(extent.address);
  return is_of_slab(span_entry(span)) && page_map.pages[first_page_of(&span)].slab_begin == begin;
}

BlockState state_of(MapState state) noexcept {
  return state == MapState::used     ? BlockState::used
         : state == MapState::cached ? BlockState::cached
                                     : BlockState::free;
}

// ---- one block ----

// Whether the block is free, as far as threads other than its owner can see. (Its first bytes may
// be the program's.)
BlockState state_of_block(const Span& slab, std::uint32_t number, const std::byte* block) noexcept {
  if (is_free(first_page_of(&slab), number) ||
      racy_read(reinterpret_cast<const Block*>(block)->key) == key_of(block))
    return BlockState::free;
  const std::uint64_t word = remote_word_of(&slab, number / 64).load(std::memory_order_relaxed);
  return (word >> number % 64 & 1) != 0 ? BlockState::cached : BlockState::used;
}

bool find_in_slab(const void* address, BlockView& block, MapExtent& span) noexcept {
  const PageMapEntry entry = entry_of(address);
  const SizeClass& c = size_class_of(entry);
  const auto [slab_page, number, is_beginning] = place_of(address, c);
  // False if the slab is being retired.
  if (slab_page >= page_map.page_count.load(std::memory_order_relaxed)) return false;
  const Span& slab = page_map.spans[slab_page];
  if (number >= racy_read(slab.carved) || number >= blocks_in_slab(c, slab.pages) ||
      entry_of(address) != entry)
    return false;
  const std::byte* const begin = memory_of(&slab) + std::size_t{number} * c.block_bytes;
  span = map_extent_of(slab);
  block = {begin, c.block_bytes, state_of_block(slab, number, begin), heap_number(entry)};
  return true;
}

// The colour of a large span's block, which other threads may change.
std::size_t racy_read_of_colour(const Span& span) noexcept { return racy_read(span.sparse_limit); }

bool find_large(const void* address, BlockView& block, MapExtent& span) noexcept {
  const std::size_t page = page_of(address);
  bool is_found = false;
  page_heap.for_each([&](const Span& each) {
    const std::size_t first = first_page_of(&each);
    if (page < first || page >= first + each.pages) return;
    span = map_extent_of(each);
    is_found = span.state == MapState::used;
  });
  if (!is_found) return false;
  const Span& found = span_at(span);
  const std::byte* const begin = memory_of(&found) + racy_read_of_colour(found);
  if (address_of(address) < address_of(begin)) return false;
  block = {begin, usable_large(begin), BlockState::used, 0};
  return true;
}

bool find_guarded(const void* address, BlockView& block, MapExtent& span) noexcept {
  const void* const begin = hooks::foreign_block_around(address);
  const std::size_t bytes = begin != nullptr ? hooks::foreign_bytes(begin) : 0;
  if (bytes == 0) return false;
  block = {begin, bytes, BlockState::used, 0};
  span = {address_of(begin), bytes, bytes, bytes, MapState::used, 0};
  return true;
}

}  // namespace

HeapMeasures measure() noexcept TS_NO_ANALYSIS {
  HeapMeasures measures;
  const PageHeap::Totals totals = page_heap.totals();
  measures.segment_bytes = totals.segment_bytes;
  measures.grow_calls = totals.grow_calls;
  measures.table_bytes = totals.table_bytes;
  measures.limit_bytes = totals.limit_bytes;
  measures.hard_limit_bytes = totals.hard_limit_bytes;
  measures.chunks = measures.segment_bytes != 0 ? 1 : 0;
  measures.purged_bytes = given_back_bytes.load(std::memory_order_relaxed);
  for_each_heap([&](const ThreadHeap& heap) {
    const bool is_ended = is_abandoned(heap);
    measures.heaps += is_arena(heap) ? 0 : 1;
    measures.ended_heaps += is_ended ? 1 : 0;
    (is_ended ? measures.ended_bytes : measures.cached_bytes) += bytes_aside(heap);
  });
  measures.slab_bytes = hooks::bytes_kept();  // not the program's
  measures.free_bytes = measures.cached_bytes + measures.ended_bytes + measures.slab_bytes;
  page_heap.for_each([&](const Span& span) { add_span(span, measures); });
  return measures.bounded();
}

bool walk_spans(MapVisitor visit, void* argument) noexcept {
  const Spans spans;
  if (!spans.are_taken()) return false;
  return std::all_of(spans.begin(), spans.end(),
                     [&](const MapExtent& extent) { return visit(extent, argument); });
}

bool walk_blocks(BlockVisitor visit, void* argument) noexcept {
  const Guard guard{background_lock};
  const Spans spans;
  if (!spans.are_taken()) return false;
  return std::all_of(spans.begin(), spans.end(), [&](const MapExtent& extent) {
    const bool is_in_use = extent.state == MapState::mixed || extent.state == MapState::used;
    if (is_in_use && !is_there(extent)) return true;
    if (extent.state == MapState::mixed) return walk_slab(span_at(extent), visit, argument);
    // A block's tail counts as its own.
    const std::size_t colour =
        extent.state == MapState::used ? racy_read_of_colour(span_at(extent)) : 0;
    return visit({reinterpret_cast<const std::byte*>(extent.address) + colour,
                  extent.bytes - room_of(colour), state_of(extent.state), 0},
                 argument);
  });
}

bool find_block(const void* address, BlockView& block, MapExtent& span) noexcept {
  const PageMapEntry entry = entry_of(address);
  if (is_of_slab(entry)) return find_in_slab(address, block, span);
  const bool is_ours = page_of(address) < page_map.page_count.load(std::memory_order_relaxed);
  return is_ours ? find_large(address, block, span) : find_guarded(address, block, span);
}

}  // namespace ts::engine
