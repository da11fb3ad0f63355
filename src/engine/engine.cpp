#include "engine/engine.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace ts::engine {
namespace {

// How many blocks the thread that asks holds in its bins; other threads' are counted as in use.
std::size_t own_bin_bytes() noexcept {
  std::size_t bytes = 0;
  for (unsigned c = 1; c < class_count; ++c) {
    const Block* block = current_heap->bins[c].head;
    for (std::uint32_t left = most_in_bin; block != nullptr && left != 0; --left) {
      bytes += size_classes[c].block_bytes;
      block = block->next;
    }
  }
  return bytes;
}

// One bit for each block of a slab, by number.
class BlockSet {
 public:
  explicit BlockSet(const Span& slab) noexcept
      : begin_{memory_of(&slab)},
        block_bytes_{size_classes[slab.size_class].block_bytes},
        blocks_{slab.slab_blocks} {}
  // Blocks of other slabs are no members.
  void add_list(const Block* block) noexcept {
    for (std::uint32_t left = most_in_bin; block != nullptr && left != 0;
         block = block->next, --left) {
      const std::size_t offset = address_of(block) - address_of(begin_);
      const std::size_t number = offset / block_bytes_;
      if (number < blocks_) add_word(number / 64, std::uint64_t{1} << number % 64);
    }
  }
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

// Every block of a slab. No other thread may be in the engine.
bool walk_slab(const Span& slab, std::uint32_t heaps, BlockVisitor visit, void* argument) noexcept {
  const Entry entry = layout.map[number_of(&slab)].load(std::memory_order_relaxed);
  const SizeClass& c = size_classes[slab.size_class];
  BlockSet free{slab};
  BlockSet cached{slab};
  free.add_list(slab.blocks);
  for (std::size_t i = 0; i * 64 < slab.slab_blocks; ++i)
    cached.add_word(i, remote_word_of(&slab, i).load(std::memory_order_relaxed));
  for (std::uint32_t number = 1; number <= heaps; ++number) {
    const ThreadHeap& heap = *heap_of(number << heap_shift);
    cached.add_list(heap.bins[slab.size_class].head);
    for (const RemoteBatch& batch : heap.batches) {
      if (batch.slab == &slab) cached.add_word(batch.word, batch.bits);
    }
  }
  for (std::uint32_t i = 0; i < slab.carved; ++i) {
    const std::byte* const p = memory_of(&slab) + std::size_t{i} * c.block_bytes;
    const BlockState state = free.contains(i)     ? BlockState::free
                             : cached.contains(i) ? BlockState::cached
                                                  : BlockState::used;
    if (!visit({p, c.block_bytes, state, entry >> heap_shift}, argument)) return false;
  }
  return true;
}

// Of what is no slab. A large span without an entry in the map is kept aside by a thread.
BlockState state_of(const Span& span) noexcept {
  if (span.state == SpanState::free) return BlockState::free;
  const Entry entry = layout.map[number_of(&span)].load(std::memory_order_relaxed);
  return entry == 0 ? BlockState::cached : BlockState::used;
}

}  // namespace

void* Engine::allocate_aligned(std::size_t bytes, std::size_t alignment) noexcept {
  if (alignment > granule_bytes || bytes > max_small_bytes)
    return allocate_large(bytes, alignment, nullptr);
  // A slab begins at a multiple of any such alignment; so does every block whose size is one.
  for (unsigned c = class_for(std::max(bytes, alignment)); c < class_count; ++c) {
    if (size_classes[c].block_bytes % alignment == 0) return allocate_small(c * sizeof(Bin));
  }
  return allocate_large(bytes, alignment, nullptr);
}

void* Engine::allocate_zeroed(std::size_t bytes) noexcept {
  bool zeroed = false;
  void* const p = bytes <= max_small_bytes ? allocate(bytes, min_alignment)
                                           : allocate_large(bytes, min_alignment, &zeroed);
  if (p != nullptr && !zeroed) std::memset(p, 0, bytes);
  return p;
}

std::size_t Engine::bytes_of(const void* p) noexcept {
  const Entry entry = entry_of(p);
  if (entry == 0) return guarded_bytes(p);
  return (entry & large_entry) != 0 ? usable_large(p) : size_class_of(entry).block_bytes;
}

std::size_t Engine::good_size(std::size_t bytes) noexcept {
  if (bytes <= max_small_bytes) return size_classes[class_for(bytes)].block_bytes;
  return align_up(bytes, granule_bytes);
}

HeapMeasures Engine::measures() noexcept {
  HeapMeasures measures;
  const std::size_t cached = own_bin_bytes();
  const PageHeap::Totals totals = page_heap.totals();
  measures.segment_bytes = totals.segment_bytes;
  measures.grow_calls = totals.grow_calls;
  measures.heaps = totals.heaps;
  measures.chunks = measures.segment_bytes != 0 ? 1 : 0;
  measures.free_bytes = measures.cached_bytes = cached;
  page_heap.for_each([&](const Span& span) {
    if (span.state == SpanState::free) {
      measures.free_bytes += span.granules * granule_bytes;
      ++measures.free_blocks;
    } else if (span.state == SpanState::slab) {
      const SizeClass& c = size_classes[span.size_class];
      const std::size_t used = span.used.load(std::memory_order_relaxed);
      measures.free_bytes += span.granules * granule_bytes - used * c.block_bytes;
      measures.free_blocks += span.slab_blocks - std::min<std::size_t>(used, span.slab_blocks);
    }
  });
  return measures;
}

bool Engine::walk(BlockVisitor visit, void* argument) noexcept {
  bool goes_on = true;
  const std::uint32_t heaps = page_heap.totals().heaps;
  page_heap.for_each([&](const Span& span) {
    if (!goes_on) return;
    if (span.state == SpanState::slab) {
      goes_on = walk_slab(span, heaps, visit, argument);
    } else {
      goes_on =
          visit({memory_of(&span), span.granules * granule_bytes, state_of(span), 0}, argument);
    }
  });
  return goes_on;
}

bool Engine::trim(std::size_t keep_bytes) noexcept {
  drain_all();
  return page_heap.trim(keep_bytes);
}

}  // namespace ts::engine
