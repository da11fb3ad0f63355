#include "engine/bins.h"

#include "base/event_counts.h"
#include "engine/large_blocks.h"
#include "engine/remote_frees.h"
#include "engine/slabs.h"
#include "engine/thread_heap.h"

namespace ts::engine {
namespace {

// Blocks of one slab that were in use come home, as a list.
void take_list_home(ThreadHeap& heap, Span& slab, Block* first, std::uint32_t count) noexcept {
  Block** end = &slab.blocks;
  while (*end != nullptr) end = &(*end)->next;
  *end = first;
  slab.free_blocks += count;
  set_used(slab, used(slab) - count);
  settle(heap, slab);
}

// The first slab of the list that has blocks which were in use before, or null. Of a class, only
// one slab, or two, still has fresh blocks alone.
Span* slab_with_blocks(const ThreadHeap& heap, unsigned size_class) noexcept {
  Span* slab = heap.partial[size_class];
  while (slab != nullptr && slab->blocks == nullptr) slab = slab->next;
  return slab;
}

void unlist_if_exhausted(ThreadHeap& heap, Span& slab) noexcept {
  if (slab.blocks == nullptr && slab.carved == slab.slab_blocks) unlist(heap, slab);
}

// Takes blocks from slabs' lists until there are enough of them or no more: such blocks are dirty
// already. The first list is taken whole, however long, since its end need not be found (but not of
// a slab that is long itself: see unpin); of further ones, as much as the bin has room for.
std::uint32_t take_used(ThreadHeap& heap, unsigned size_class, Block*& head) noexcept {
  const SizeClass& c = size_classes[size_class];
  const std::uint32_t room = c.bin_blocks;
  std::uint32_t taken = 0;
  while (taken < (room + 1) / 2) {
    Span* const slab = slab_with_blocks(heap, size_class);
    if (slab == nullptr) break;
    std::uint32_t count = slab->free_blocks;
    Block* const first = slab->blocks;
    const bool takes_whole = head == nullptr && c.slab_granules == 1;
    if (takes_whole) {
      slab->blocks = nullptr;
    } else {
      count = count < room - taken ? count : room - taken;
      Block* last = first;
      for (std::uint32_t i = 1; i < count; ++i) last = last->next;
      slab->blocks = last->next;
      last->next = head;
    }
    head = first;
    slab->free_blocks -= count;
    set_used(*slab, used(*slab) + count);
    unlist_if_exhausted(heap, *slab);
    taken += count;
  }
  return taken;
}

// Links fresh blocks, a page of them at a time; 0 without memory.
std::uint32_t take_fresh(ThreadHeap& heap, unsigned size_class, Block*& head) noexcept {
  const SizeClass& c = size_classes[size_class];
  Span* slab = heap.partial[size_class];
  if (slab == nullptr) {
    slab = allocate_span(next_slab_granules(heap, size_class), 1, size_class);
    if (slab == nullptr) return 0;
    add_slab(heap, *slab);
  }
  const std::uint32_t left = slab->slab_blocks - slab->carved;
  const std::uint32_t taken = c.carve_blocks < left ? c.carve_blocks : left;
  std::byte* at = memory_of(slab) + std::size_t{slab->carved} * c.block_bytes;
  head = reinterpret_cast<Block*>(at);
  for (std::uint32_t i = 1; i < taken; ++i, at += c.block_bytes)
    reinterpret_cast<Block*>(at)->next = reinterpret_cast<Block*>(at + c.block_bytes);
  reinterpret_cast<Block*>(at)->next = nullptr;
  slab->carved += taken;
  set_used(*slab, used(*slab) + taken);
  unlist_if_exhausted(heap, *slab);
  return taken;
}

}  // namespace

Block* refill(ThreadHeap& heap, unsigned size_class) noexcept {
  drain(heap);
  if constexpr (counting) count_event(Event::bin_refills);
  Block* head = nullptr;
  std::uint32_t taken = take_used(heap, size_class, head);
  if (taken == 0) taken = take_fresh(heap, size_class, head);
  if (taken == 0) return nullptr;
  Bin& bin = heap.bins[size_class];
  bin.head = head->next;
  bin.room = static_cast<std::int32_t>(bin_blocks(heap, size_classes[size_class]) - (taken - 1));
  return head;
}

void empty_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  const SizeClass& c = size_classes[size_class];
  Bin& bin = heap.bins[size_class];
  Block* block = bin.head;
  const std::int32_t room = bin.room;
  const std::uint32_t capacity = bin_blocks(heap, c);
  bin = {nullptr, static_cast<std::int32_t>(capacity)};
  if (room < 0) {
    const std::uint32_t count = capacity + static_cast<std::uint32_t>(-room);
    return take_list_home(heap, *slab_of(block), block, count);
  }
  while (block != nullptr) {
    Block* const next = block->next;
    const Entry entry = entry_of(block);
    if ((entry ^ heap.self) < heap_unit) {
      take_home(heap, *slab_of(block), block);
    } else {
      release_remote(heap, block, c);
    }
    block = next;
  }
}

void empty(ThreadHeap& heap) noexcept {
  for (unsigned c = 1; c < class_count; ++c) empty_bin(heap, c);
  send_batches(heap);
  release_kept(heap);
  drain(heap);
  release_empty_slabs(heap);
}

void unpin(ThreadHeap& heap, Span& slab) noexcept {
  const SizeClass& c = size_classes[slab.size_class];
  if (slab.granules == 1 || used(slab) > bin_blocks(heap, c)) return;
  std::uint32_t in_bin = 0;
  for (const Block* block = heap.bins[slab.size_class].head; block != nullptr; block = block->next)
    in_bin += slab_of(block, c) == &slab ? 1 : 0;
  if (in_bin != used(slab)) return;
  empty_bin(heap, slab.size_class);
}

void recount_bins(ThreadHeap& heap) noexcept {
  for (unsigned c = 1; c < class_count; ++c) {
    Bin& bin = heap.bins[c];
    bin.room = static_cast<std::int32_t>(bin_blocks(heap, size_classes[c]));
    for (const Block* block = bin.head; block != nullptr; block = block->next) --bin.room;
  }
}

}  // namespace ts::engine
