#include "core/spare_lists.h"

#include <algorithm>

#include "core/misuse.h"
#include "core/remote_frees.h"

namespace ts::engine {
namespace {

constexpr std::uint32_t lists_at_first = 64;

void set_spare_list_count(ThreadHeap& heap, std::uint32_t count) noexcept {
  heap.spare_list_count.store(static_cast<std::uint16_t>(count), std::memory_order_relaxed);
}

// How many lists the heap may have in all. Many heaps would have too few each.
std::uint32_t share_of_lists() noexcept {
  constexpr std::uint32_t least = 16;
  const std::uint32_t heaps = page_map.heap_count.load(std::memory_order_relaxed);
  const std::uint32_t share = max_spare_lists / std::max(heaps, 1U);
  return share >= least ? share : 0;
}

// How many it may have now: at first a MiB of blocks, so that a program that frees much and is done
// keeps little.
std::uint32_t most_lists(const ThreadHeap& heap) noexcept {
  return std::min(lists_at_first + heap.more_spare_lists, share_of_lists());
}

// To be called when a burst turned out to be too large: moving the blocks that were put aside to
// their slabs took longer than freeing them there at once. If bursts continue, each after mallocs
// that refilled the bin, the heap may have more lists, or tries again much later. Bursts of the
// class that ran out of lists weigh more, since each pass of the program has one of them, however
// many other classes it uses.
constexpr std::uint16_t weight_of_class = 32;
void do_without_lists(ThreadHeap& heap, unsigned size_class, bool may_have_more) noexcept {
  constexpr std::uint16_t bursts_until_more = 4 * weight_of_class;
  constexpr std::uint16_t bursts_until_trial = 60 * weight_of_class;
  const std::uint32_t most = most_lists(heap);
  may_have_more = may_have_more && most < share_of_lists();
  heap.bursts_without_lists = may_have_more ? bursts_until_more : bursts_until_trial;
  heap.class_without_lists = static_cast<std::uint8_t>(size_class);
  if (may_have_more) heap.more_spare_lists = static_cast<std::uint16_t>(2 * most - lists_at_first);
}

// Whether most of the list's first blocks, which were freed last, lie in a slab with the next one.
// Their lines are still cached. Follows no link that the program overwrote.
bool is_in_order(const Block* block, unsigned size_class) noexcept {
  int near = 0;
  for (int i = 0; i < 3; ++i) {
    const Block* const next = block->next;
    if (next == nullptr || !is_of_class(next, size_class)) return false;
    near += page_of(block) == page_of(next) ? 1 : 0;
    block = next;
  }
  return near >= 2;
}

// A list of scattered blocks is slow to allocate from: malloc waits for each block before it knows
// the next one. That does not matter while the lists of the class fit in a cache, or if mallocs of
// other classes come between.
bool is_too_scattered(const ThreadHeap& heap, unsigned size_class) noexcept {
  constexpr std::uint32_t lists_in_cache = 32;
  const std::uint32_t lists = heap.spare_lists_of[size_class];
  return lists >= lists_in_cache && lists > spare_list_count(heap) / 4 &&
         !is_in_order(heap.bins[size_class].head, size_class);
}

// A list ages by one at every 72nd refill of its heap, and by more in each round of the background
// thread. It is too old when a burst as large as all lists together could have been allocated
// since.
constexpr std::uint8_t oldest_age = max_spare_lists / refills_per_look + 2;
constexpr std::uint8_t age_of_round = oldest_age / 4;

std::int32_t length_of_list(const ThreadHeap& heap, unsigned size_class) noexcept {
  return static_cast<std::int32_t>(max_bin_capacity(heap, size_classes[size_class]));
}

// Takes a list out of the heap's. If this or put_aside() never returns, a list is lost, and
// spare_lists_of may be too high, never too low.
Block* take_out(ThreadHeap& heap, std::uint32_t i) noexcept TS_REQUIRES(heap) {
  SpareLists& lists = heap.spare_lists;
  Block* const first = lists.first[i];
  const unsigned size_class = lists.size_class[i];
  const std::uint32_t last = spare_list_count(heap) - 1;
  set_spare_list_count(heap, last);
  std::atomic_signal_fence(std::memory_order_release);
  lists.first[i] = lists.first[last];
  lists.size_class[i] = lists.size_class[last];
  lists.age[i] = lists.age[last];
  std::atomic_signal_fence(std::memory_order_release);
  --heap.spare_lists_of[size_class];
  return first;
}

void flush_spare_list(ThreadHeap& heap, std::uint32_t i) noexcept TS_REQUIRES(heap) {
  const unsigned size_class = heap.spare_lists.size_class[i];
  flush_list(heap, size_class, take_out(heap, i), length_of_list(heap, size_class));
}

bool has_spare_lists(const ThreadHeap& heap, const SizeClass& c) noexcept {
  return c.slab_pages == 1 && !heap.has_sampling_bins && !is_arena(heap);
}

}  // namespace

bool put_aside(ThreadHeap& heap, unsigned size_class) noexcept {
  const SizeClass& c = size_classes[size_class];
  if (!has_spare_lists(heap, c) || heap.capacities[size_class] != max_bin_capacity(heap, c))
    return false;
  if (std::uint16_t& left = heap.bursts_without_lists; left != 0) {
    const std::uint16_t weight = size_class == heap.class_without_lists ? weight_of_class : 1;
    left = static_cast<std::uint16_t>(left - std::min(left, weight));
    return false;
  }
  const std::uint32_t count = spare_list_count(heap);
  const bool is_full = count >= most_lists(heap);
  if (is_full || is_too_scattered(heap, size_class)) {
    do_without_lists(heap, size_class, is_full);
    return false;
  }
  SpareLists& lists = heap.spare_lists;
  lists.first[count] = heap.bins[size_class].head;
  lists.size_class[count] = static_cast<std::uint8_t>(size_class);
  lists.age[count] = 0;
  lists.last_of[size_class] = static_cast<std::uint16_t>(count);
  drop_bin(heap, size_class);
  std::atomic_signal_fence(std::memory_order_release);
  ++heap.spare_lists_of[size_class];
  std::atomic_signal_fence(std::memory_order_release);
  set_spare_list_count(heap, count + 1);
  return true;
}

Block* refill_from_spare_list(ThreadHeap& heap, unsigned size_class) noexcept {
  if (heap.spare_lists_of[size_class] == 0) return nullptr;
  SpareLists& lists = heap.spare_lists;
  const std::uint32_t end = lists.last_of[size_class] + 1U;
  for (std::uint32_t i = std::min(spare_list_count(heap), end); i-- != 0;) {
    if (lists.size_class[i] != size_class) continue;
    lists.last_of[size_class] = static_cast<std::uint16_t>(i);
    Block* const first = take_out(heap, i);
    put_into_bin(heap, size_class, first,
                 static_cast<std::uint32_t>(length_of_list(heap, size_class)));
    return first;
  }
  return nullptr;
}

void flush_spare_lists(ThreadHeap& heap, unsigned size_class) noexcept {
  for (std::uint32_t i = spare_list_count(heap); i-- != 0;) {
    if (heap.spare_lists.size_class[i] == size_class) flush_spare_list(heap, i);
  }
}

bool flush_first_spare_lists(ThreadHeap& heap, std::size_t lists) noexcept {
  if (spare_list_count(heap) == 0) return false;
  for (; lists != 0 && spare_list_count(heap) != 0; --lists) flush_spare_list(heap, 0);
  return true;
}

bool flush_spare_lists_to_grow(ThreadHeap& heap, std::size_t pages) noexcept {
  constexpr std::size_t part = 32;
  return flush_first_spare_lists(heap, std::max(pages, 1 + spare_list_count(heap) / part));
}

void flush_old_spare_lists(ThreadHeap& heap) noexcept {
  for (std::uint32_t i = spare_list_count(heap); i-- != 0;) {
    if (++heap.spare_lists.age[i] > oldest_age) flush_spare_list(heap, i);
  }
}

SpareList take_old_spare_list(ThreadHeap& heap, bool takes_all, std::uint32_t& left) noexcept {
  SpareLists& lists = heap.spare_lists;
  for (left = std::min(left, spare_list_count(heap)); left != 0;) {
    --left;
    lists.age[left] += age_of_round;
    if (lists.age[left] <= oldest_age && !takes_all) continue;
    heap.more_spare_lists = 0;
    const unsigned size_class = lists.size_class[left];
    return {take_out(heap, left), size_class};
  }
  return {};
}

void send(SpareList list) noexcept {
  const SizeClass& c = size_classes[list.size_class];
  Block* block = list.first;
  for (std::uint32_t left = max_in_bin; block != nullptr && left != 0; --left) {
    const BlockPlace place = place_of(block, c);
    if (!is_of_class(block, list.size_class) || !has_key(block) || !place.is_beginning) [[unlikely]]
      return report_damage(list.size_class, block);
    Block* const next = block->next;
    clear_key(block);  // its owner would take it for a block that was freed twice
    release_remote_at_once(place, FoundBy::a_later_call);
    block = next;
  }
}

}  // namespace ts::engine
