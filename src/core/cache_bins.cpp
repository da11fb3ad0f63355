#include "core/cache_bins.h"

#include <algorithm>

#include "base/check.h"
#include "core/misuse.h"
#include "core/remote_frees.h"
#include "core/slabs.h"

namespace ts::engine {

std::uint32_t max_single_blocks() noexcept {
  const std::uint32_t heaps = page_map.heap_count.load(std::memory_order_relaxed);
  return std::min(single_blocks_in_bins / std::max(heaps, 1U), single_blocks);
}

void report_damage(unsigned size_class, const void* where) noexcept {
  report_misuse(Misuse::damaged_list, FoundBy::a_later_call, where,
                size_classes[size_class].block_bytes);
}

namespace {

// The fewest sparse slabs that count, depending on how many threads share the memory.
std::uint32_t min_sparse_slabs() noexcept {
  const std::uint32_t heaps = page_map.heap_count.load(std::memory_order_relaxed);
  return heaps <= 4 ? 64 : heaps <= max_heaps_with_wide_bins ? 4 : 2;
}

bool are_many_sparse(const ThreadHeap& heap, unsigned size_class) noexcept {
  return heap.sparse_slabs[size_class] >= std::max(min_sparse_slabs(), heap.slabs[size_class] / 4);
}

constexpr std::uint32_t slabs_per_binned_block = 32;

constexpr std::int32_t max_length = static_cast<std::int32_t>(max_in_bin);

// Whether a bin's list, from this block on, ends.
[[gnu::cold, gnu::noinline]] bool has_end(const Block* block, unsigned size_class) noexcept {
  for (std::uint32_t left = max_in_bin; left != 0 && is_of_class(block, size_class); --left) {
    block = block->next;
    if (block == nullptr) return true;
  }
  return false;
}

// Empties the sampling bin, which takes no more blocks until the next refill.
void flush_sampling_bin(ThreadHeap& heap, unsigned size_class) noexcept TS_REQUIRES(heap) {
  Block* const block = heap.sampling_bins[size_class].head;
  const std::int32_t count = counted_in_sampling_bin(heap, size_class);
  set_sampling_bin(heap, size_class, nullptr, 0, 0);
  if (block != nullptr) flush_list(heap, size_class, block, count);
}

// The length of a list; counting stops at max_length + 1.
std::int32_t length_of(const Block* block) noexcept {
  std::int32_t length = 0;
  for (; block != nullptr && length <= max_length; block = block->next) ++length;
  return length;
}

// How many of the first `left` blocks of a list belong to the slab.
std::int32_t count_of_slab(const Block* block, std::int32_t left, const Span& slab) noexcept {
  const std::uintptr_t begin = address_of(memory_of(&slab));
  const std::size_t bytes = slab.pages * page_bytes;
  std::int32_t count = 0;
  for (; block != nullptr && left > 0; block = block->next, --left)
    count += address_of(block) - begin < bytes ? 1 : 0;
  return count;
}

}  // namespace

void flush_list(ThreadHeap& heap, unsigned size_class, Block* block, std::int32_t count) noexcept {
  const SizeClass& c = size_classes[size_class];
  std::int32_t left = count + count_tolerance;
  for (; block != nullptr; --left) {
    const PageMapEntry entry = entry_of(block);
    // No key: the program overwrote it.
    if ((entry & class_mask) != size_class << class_shift || !has_key(block) ||
        (left <= 0 && !has_end(block, size_class))) [[unlikely]]
      return report_damage(size_class, block);
    Block* const next = block->next;
    const BlockPlace place = place_of(block, c);
    if (place.is_beginning && !is_own(heap, entry)) {
      // Clears the key: otherwise its owner would take it for a block that it has freed.
      release_remote(heap, clear_key(block), place, c, FoundBy::a_later_call);
    } else if (!place.is_beginning || !push_to_slab(heap, block, place)) [[unlikely]] {
      report_misuse(kind_of_free(page_map.spans[place.slab_page], place), FoundBy::a_later_call,
                    block, c.block_bytes);
    }
    block = next;
  }
  // The list ended before its count: a link was overwritten, or closes a ring.
  if (left > 2 * count_tolerance) [[unlikely]]
    report_damage(size_class, nullptr);
}

void flush_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  Block* const block = first_block(heap.bins[size_class]);
  const std::int32_t count = counted_blocks(heap, size_class);
  drop_bin(heap, size_class);
  if (block != nullptr) flush_list(heap, size_class, block, count);
  if (heap.spare_lists_of[size_class] != 0) flush_spare_lists(heap, size_class);
  if (!heap.has_sampling_bins) return;
  // They were counted as handed out when they entered the bin.
  if (heap.until_sample[size_class] != 0 && count > 0)
    heap.until_sample[size_class] += static_cast<std::uint32_t>(count);
  flush_sampling_bin(heap, size_class);
}

bool is_burst(ThreadHeap& heap, unsigned size_class, const CacheBin& full) noexcept {
  constexpr std::uint8_t frees_of_burst = 12;
  if (&full != &heap.bins[size_class] || spare_list_count(heap) != 0) return true;
  const auto first = static_cast<std::uint16_t>(address_of(full.head) / min_alignment);
  std::uint8_t& frees = heap.frees_when_full[size_class];
  if (heap.first_when_full[size_class] != first) frees = 0;
  heap.first_when_full[size_class] = first;
  return ++frees % frees_of_burst == 0;
}

void bypass_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  flush_bin(heap, size_class);
  set_capacity(heap, size_class, 0);
}

void reopen_bin(ThreadHeap& heap, unsigned size_class) noexcept {
  const std::uint32_t most = max_bin_capacity(heap, size_classes[size_class]);
  set_capacity(heap, size_class,
               are_many_sparse(heap, size_class) ? std::min(min_narrow_capacity, most) : most);
}

void note_sparse_slab(ThreadHeap& heap, unsigned size_class) noexcept {
  if (!are_many_sparse(heap, size_class)) {
    ++heap.sparse_slabs[size_class];
    return;
  }
  const std::uint32_t capacity =
      std::max(min_narrow_capacity, heap.slabs[size_class] / slabs_per_binned_block);
  if (2 * capacity > heap.capacities[size_class]) return;
  flush_bin(heap, size_class);
  set_capacity(heap, size_class, capacity);
}

void flush(ThreadHeap& heap) noexcept {
  for (unsigned c = 1; c < class_count; ++c) flush_bin(heap, c);
  flush_batches(heap);
  collect(heap);
  retire_empty_slabs(heap);
}

void move_fast_free_threshold(ThreadHeap& heap, Span& slab) noexcept {
  const unsigned c = slab.size_class;
  const auto in_use = static_cast<std::int32_t>(used(slab));
  const std::int32_t limit = slab.sparse_limit;
  std::int32_t threshold = in_use > limit ? limit : 0;
  if (slab.pages > 1 && slab.size_class < first_single_class) {
    const std::int32_t binned = counted_blocks(heap, c);
    const std::int32_t sampled = heap.has_sampling_bins ? counted_in_sampling_bin(heap, c) : 0;
    std::int32_t in_bins = binned + sampled;
    if (in_use <= in_bins) {
      in_bins = count_of_slab(heap.bins[c].head, binned, slab);
      if (sampled > 0) in_bins += count_of_slab(heap.sampling_bins[c].head, sampled, slab);
      if (in_bins == in_use) return flush_bin(heap, c);
    }
    threshold = std::max(threshold, in_bins);
  }
  use_of(slab).fast_free_threshold = static_cast<std::int16_t>(threshold);
}

void end_heap_sampling(ThreadHeap& heap) noexcept {
  for (unsigned c = 1; c < class_count; ++c) flush_bin(heap, c);
  std::ranges::fill(heap.until_sample, 0U);
  heap.drawn_interval = 0;
  heap.has_sampling_bins = false;
  bypass_or_open_all(heap);
}

void recount_bins(ThreadHeap& heap) noexcept {
  for (unsigned c = 1; c < class_count; ++c) {
    CacheBin& bin = heap.bins[c];
    bin.capacity_left = heap.capacities[c];
    const std::int32_t length = length_of(first_block(bin));
    bin.capacity_left -= length;
    if (length > max_length) drop_bin(heap, c);
    if (!heap.has_sampling_bins) continue;
    Block* const first = heap.sampling_bins[c].head;
    const std::int32_t sampled = length_of(first);
    sampled > max_length ? set_sampling_bin(heap, c, nullptr, 0, 0)
                         : set_sampling_bin(heap, c, first, sampled, heap.sampling_capacities[c]);
  }
}

}  // namespace ts::engine
