#include "engine/bins.h"

#include "base/event_counts.h"
#include "engine/large_blocks.h"
#include "engine/remote_frees.h"
#include "engine/slabs.h"
#include "engine/thread_heap.h"

namespace ts::engine {
namespace {

void report_damage(unsigned size_class, const void* where) noexcept {
  report_misuse(Misuse::damaged_list, FoundBy::a_later_call, where,
                size_classes[size_class].block_bytes);
}

// Lengths of lists and the numbers that say how long they should be may differ by this much without
// anybody's misuse: a call that was left for good between two stores, by longjmp out of a signal
// handler or by cancellation, or in the thread of a parent (layout.h, put_before).
constexpr std::int32_t tolerance = 1;

// Blocks of one slab that were in use come home, as a list.
void take_list_home(ThreadHeap& heap, Span& slab, Block* first, std::uint32_t count) noexcept {
  Block** end = &slab.blocks;
  auto left = static_cast<std::int32_t>(slab.free_blocks) + tolerance;
  for (; *end != nullptr && left != 0; --left) end = &(*end)->next;
  if (*end != nullptr) [[unlikely]]
    report_damage(slab.size_class, *end);  // a ring, from here on
  *end = first;
  slab.free_blocks += count;
  take_count_home(slab, count);
  settle(heap, slab);
}

// How many blocks the bin holds, as far as malloc and free counted; negative if it gave more than it
// got, which only a list that is a ring makes possible.
std::int32_t counted_blocks(const ThreadHeap& heap, unsigned size_class) noexcept {
  const auto capacity = static_cast<std::int32_t>(bin_blocks(heap, size_classes[size_class]));
  return capacity - heap.bins[size_class].room;
}

// What is on a damaged list is lost.
void forget_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  heap.bins[size_class] = {nullptr,
                           static_cast<std::int32_t>(bin_blocks(heap, size_classes[size_class]))};
}

// Neither malloc nor free can see that a bin's list is a ring, and it never runs dry; so each refill
// looks at one of the bins, in turn.
void check_next_bin(ThreadHeap& heap) noexcept {
  const unsigned size_class = heap.checked_class % (class_count - 1) + 1;
  heap.checked_class = static_cast<std::uint8_t>(size_class);
  if (counted_blocks(heap, size_class) >= -tolerance) [[likely]]
    return;
  report_damage(size_class, heap.bins[size_class].head);
  forget_bin(heap, size_class);
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
      std::uint32_t length = 1;
      for (; length < count && last->next != nullptr; ++length) last = last->next;
      if (length != count) [[unlikely]] {
        report_damage(size_class, last);
        slab->free_blocks = count = length;
      }
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
  if constexpr (counting) count_event(Event::bin_refills);
  check_next_bin(heap);
  // Now and then all that came home is taken, also for classes that nobody asks for any more.
  if (heap.checked_class == 1) drain(heap);
  // What is at its end should have been counted to its end.
  const std::int32_t astray = counted_blocks(heap, size_class);
  if (heap.bins[size_class].head != nullptr || astray > tolerance || astray < -tolerance)
      [[unlikely]] {
    report_damage(size_class, heap.bins[size_class].head);
    forget_bin(heap, size_class);
  }
  Block* head = nullptr;
  std::uint32_t taken = take_used(heap, size_class, head);
  if (taken == 0 && drain(heap)) taken = take_used(heap, size_class, head);
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
  if (block == nullptr) return;
  if (room < 0) {
    const std::uint32_t count = capacity + static_cast<std::uint32_t>(-room);
    return take_list_home(heap, *slab_of(block), block, count);
  }
  std::int32_t left = static_cast<std::int32_t>(capacity) - room + tolerance;
  for (; block != nullptr; --left) {
    const Entry entry = entry_of(block);
    if (left <= 0 || (entry & class_mask) != size_class << class_shift) [[unlikely]]
      return report_damage(size_class, block);
    Block* const next = block->next;
    const BlockPlace place = place_of(block, c);
    if ((entry ^ heap.self) >= heap_unit) {
      release_remote(heap, block, place, c, FoundBy::a_later_call);
    } else if (place.is_beginning) [[likely]] {
      take_home(heap, *slab_of(block), block);
    } else {
      report_misuse(Misuse::no_beginning, FoundBy::a_later_call, block, c.block_bytes);
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
  const Block* block = heap.bins[slab.size_class].head;
  for (std::int32_t left = counted_blocks(heap, slab.size_class); block != nullptr && left > 0;
       --left) {
    in_bin += slab_of(block, c) == &slab ? 1 : 0;
    block = block->next;
  }
  if (in_bin != used(slab)) return;
  empty_bin(heap, slab.size_class);
}

void recount_bins(ThreadHeap& heap) noexcept {
  for (unsigned c = 1; c < class_count; ++c) {
    Bin& bin = heap.bins[c];
    bin.room = static_cast<std::int32_t>(bin_blocks(heap, size_classes[c]));
    std::uint32_t left = most_in_bin;
    for (const Block* block = bin.head; block != nullptr && left != 0; block = block->next, --left)
      --bin.room;
    if (left == 0) forget_bin(heap, c);
  }
}

}  // namespace ts::engine
