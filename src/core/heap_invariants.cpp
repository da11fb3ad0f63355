#include "core/heap_invariants.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <numeric>

#include "base/check.h"
#include "core/cache_bins.h"
#include "core/slabs.h"
#include "core/spare_lists.h"
#include "core/sparse_slabs.h"

namespace ts::engine {
namespace {

// A call that never returned may have left any one count off by one (types.h). The child of a fork
// of a threaded process tolerates that difference; other processes do not.
bool forgives_cut_counts(const ThreadHeap& heap) noexcept { return heap.from_fork; }

// Checks the entries and the descriptors of a slab's pages.
Fault find_page_fault(const ThreadHeap& heap, const Span& slab) noexcept {
  const PageMapEntry entry = entry_of_heap(heap) | PageMapEntry{slab.size_class} << class_shift |
                             (span_entry(slab) & keyless_bit);
  for (std::size_t i = 0; i < slab.pages; ++i) {
    const MapPage& page = page_map.pages[first_page_of(&slab) + i];
    if (page.entry.load(std::memory_order_relaxed) != entry)
      return {"each page of a slab has its owner's number and its class", &slab + i};
    if (offset_in_slab(memory_of(&slab), page) != 0)
      return {"each page of a slab has the slab's beginning", &slab + i};
  }
  return {};
}

Fault find_free_block_fault(const Span& slab) noexcept {
  std::uint32_t purged = 0;
  for (std::uint32_t number = 0; number < slab.slab_blocks; ++number) {
    const bool is_purged_block = number < slab.carved && is_purged(slab, number);
    purged += is_purged_block ? 1 : 0;
    if (!is_free(first_page_of(&slab), number)) {
      if (number >= slab.carved || is_purged_block)
        return {"a block is free that was never taken, or is purged", &slab};
      continue;
    }
    if (number >= slab.carved || is_purged_block) continue;
    const std::byte* const block = block_at(slab, number);
    if (has_key(block) ? !slab.has_keys : !is_keyless(slab))
      return {"free blocks have their keys, if the slab says so", block};
  }
  if (purged != slab.purged_blocks) return {"purged_blocks begin in purged OS pages", &slab};
  if (purged != 0 && !is_keyless(slab))
    return {"free blocks have their keys, if the slab says so", &slab};
  const std::uint32_t last = slab.slab_blocks - 1U;
  if ((free_word(slab, last / 64) & ~lowest_bits(last % 64 + 1)) != 0)
    return {"a slab has bits for its blocks alone", &slab};
  return {};
}

}  // namespace

bool are_close(const ThreadHeap& heap, std::int64_t a, std::int64_t b) noexcept {
  const std::int64_t difference = a - b;
  return difference == 0 || (forgives_cut_counts(heap) && std::abs(difference) <= count_tolerance);
}

Fault find_slab_fault(const ThreadHeap& heap, const Span& slab) noexcept {
  if (const Fault fault = find_page_fault(heap, slab)) return fault;
  if (slab.carved > slab.slab_blocks) return {"carved <= slab_blocks", &slab};
  if (const Fault fault = find_free_block_fault(slab)) return fault;
  if (is_listed(slab) != has_free_block(slab))
    return {"a slab is listed, if and only if it has blocks to give", &slab};
  const std::int16_t threshold = use_of(slab).fast_free_threshold;
  if (threshold < 0 || (threshold < slab.sparse_limit && used(slab) > slab.sparse_limit))
    return {"frees of a listed slab stop at its limits", &slab};
  return {};
}

Fault find_count_fault(const ThreadHeap& heap, const Span& slab, std::int64_t early) noexcept {
  const std::int64_t accounted = std::int64_t{used(slab)} + count_free_blocks(slab) - early;
  if (!are_close(heap, accounted, slab.slab_blocks))
    return {"used + free blocks == slab_blocks", &slab};
  return {};
}

namespace {

// ---- cache bins ----

// Checks a list of a bin, which has counted its blocks.
Fault find_list_fault(const ThreadHeap& heap, unsigned size_class, const Block* block,
                      std::int64_t count) noexcept {
  const SizeClass& c = size_classes[size_class];
  std::int64_t length = 0;
  for (; block != nullptr; block = block->next) {
    if (++length > max_in_bin) return {"a cache bin's list ends", block};
    const PageMapEntry entry = entry_of(block);
    if (!is_of_slab(entry) || &size_class_of(entry) != &c)
      return {"a cache bin has blocks of its class", block};
    const BlockPlace place = place_of(block, c);
    const Span& slab = page_map.spans[place.slab_page];
    if (!place.is_beginning || place.number >= slab.slab_blocks)
      return {"a cache bin has beginnings of blocks", block};
    if (is_own(heap, entry) && is_free(place)) return {"a block of a cache bin is not free", block};
    if (!has_key(block)) return {"a block of a cache bin has its key", block};
  }
  if (!are_close(heap, length, count))
    return {"a cache bin has capacity - capacity_left blocks", &heap.bins[size_class]};
  return {};
}

Fault find_bin_fault(const ThreadHeap& heap, unsigned size_class) noexcept {
  const SizeClass& c = size_classes[size_class];
  const CacheBin& bin = heap.bins[size_class];
  const std::uint32_t capacity = heap.capacities[size_class];
  // A bin of single blocks may still have its share from when there were fewer heaps.
  if (capacity > (c.block_bytes > max_shared_bytes ? single_blocks : max_bin_capacity(heap, c)))
    return {"a cache bin's capacity is at most its class's", &bin};
  if (heap.bypassed_refills != 0 && capacity != 0)
    return {"bypassed cache bins have capacity 0", &bin};
  if (capacity == 0 && first_block(bin) != nullptr)
    return {"a cache bin without capacity is empty", &bin};
  if (bin.head == bypassed_bin() && (capacity != 0 || heap.has_sampling_bins))
    return {"a closed cache bin has no capacity, and no sampling bin beside it", &bin};
  return find_list_fault(heap, size_class, first_block(bin), counted_blocks(heap, size_class));
}

Fault find_spare_list_fault(const ThreadHeap& heap) noexcept {
  const SpareLists& lists = heap.spare_lists;
  if (spare_list_count(heap) > max_spare_lists)
    return {"a heap has at most so many spare lists", &heap};
  for (unsigned c = 1; c < class_count; ++c) {
    const std::uint32_t most = max_bin_capacity(heap, size_classes[c]);
    if (std::count(lists.size_class, lists.size_class + spare_list_count(heap), c) !=
        heap.spare_lists_of[c])
      return {"a heap counts its spare lists by class", &heap};
    if (heap.spare_lists_of[c] != 0 && heap.capacities[c] != most)
      return {"the bin of spare lists has its largest capacity", &heap.bins[c]};
  }
  for (std::uint32_t i = 0; i < spare_list_count(heap); ++i) {
    if (lists.last_of[lists.size_class[i]] < i)
      return {"no spare list comes after the last one of its class", &heap};
  }
  Fault fault;
  for_each_spare_list(heap, [&](const Block* first, unsigned size_class) {
    if (!fault)
      fault = find_list_fault(heap, size_class, first,
                              max_bin_capacity(heap, size_classes[size_class]));
  });
  return fault;
}

Fault find_sampling_bin_fault(const ThreadHeap& heap, unsigned size_class) noexcept {
  const CacheBin& bin = heap.sampling_bins[size_class];
  if (!heap.has_sampling_bins && bin.head != nullptr)
    return {"a heap that has never sampled has no blocks in sampling bins", &bin};
  std::int64_t length = 0;
  for (const Block* block = bin.head; block != nullptr; block = block->next) {
    if (++length > max_in_bin) return {"a sampling bin's list ends", &bin};
    const PageMapEntry entry = entry_of(block);
    if (!is_of_slab(entry) || &size_class_of(entry) != &size_classes[size_class] || !has_key(block))
      return {"blocks of a sampling bin have the bin's class and their keys", block};
  }
  const std::int32_t counted =
      heap.has_sampling_bins ? counted_in_sampling_bin(heap, size_class) : 0;
  if (!are_close(heap, length, counted))
    return {"a sampling bin has sampling_capacities - capacity_left blocks", &bin};
  return {};
}

// ---- slabs ----

// Checks a slab's count while other threads send frees, which may lag but never exceed the bits.
Fault find_running_count_fault(const ThreadHeap& heap, const Span& slab) noexcept {
  const std::int64_t accounted = std::int64_t{used(slab)} + count_free_blocks(slab);
  return accounted > slab.slab_blocks ? Fault{} : find_count_fault(heap, slab, 0);
}

Fault find_class_fault(const ThreadHeap& heap, unsigned size_class) noexcept {
  const Span* before = nullptr;
  std::uint32_t listed = 0;
  for (const Span* slab = heap.partial[size_class]; slab != nullptr;
       before = slab, slab = slab->next) {
    if (++listed > heap.slabs[size_class]) return {"a heap counts its slabs", slab};
    if (before != nullptr && slab->previous != before)
      return {"listed slabs are linked in both directions", slab};
    if (slab->state != SpanState::slab || slab->size_class != size_class)
      return {"a list of slabs has slabs of its class", slab};
    if (const Fault fault = find_slab_fault(heap, *slab)) return fault;
    if (const Fault fault = find_running_count_fault(heap, *slab)) return fault;
  }
  if (before != nullptr && heap.partial[size_class]->previous != before)
    return {"the first slab of a list is linked to the last", before};
  return {};
}

// Checks the queue of sparse slabs, which must be the heap's; an arena's has all its slabs.
Fault find_queue_fault(const ThreadHeap& heap) noexcept {
  std::uint32_t pages = 0;
  std::uint32_t queued = 0;
  std::uint32_t before = 0;
  for (std::uint32_t link = heap.first_sparse; link != 0;) {
    const Span& slab = queued_slab(link);
    if (slab.state != SpanState::slab || !is_own(heap, span_entry(slab)))
      return {"a queue of sparse slabs has its heap's", &slab};
    if (slab.previous_sparse != before)
      return {"queued slabs are linked in both directions", &slab};
    pages += slab.pages;
    ++queued;
    before = link;
    link = link_after(slab);
  }
  if (pages != heap.sparse_pages || before != heap.last_sparse)
    return {"a queue has as many pages as it counts", &heap};
  if (is_arena(heap) && queued != std::accumulate(heap.slabs, heap.slabs + class_count, 0U))
    return {"an arena's queue has all its slabs", &heap};
  return {};
}

// ---- batches ----

Fault find_batch_fault(const ThreadHeap& heap, const RemoteBatch& batch) noexcept {
  if (batch.slab == nullptr)
    return batch.count == 0 ? Fault{} : Fault{"a batch without a slab is empty", &batch};
  if (batch.count == 0) return {};  // its slab may no longer exist
  if (!are_close(heap, std::popcount(batch.bits), batch.count))
    return {"a batch has as many bits as it counts", &batch};
  const PageMapEntry entry = span_entry(*batch.slab);
  if (!is_of_slab(entry) || is_own(heap, entry))
    return {"a batch has blocks of another heap's slab", &batch};
  if (batch.count >= size_class_of(entry).carve_blocks) return {"a full batch is sent", &batch};
  if (std::size_t{batch.word} * 64 >= batch.slab->slab_blocks)
    return {"a batch has blocks of its slab", &batch};
  return {};
}

}  // namespace

Fault find_heap_fault(ThreadHeap& heap) noexcept {
  for (unsigned c = 1; c < class_count; ++c) {
    if (const Fault fault = find_bin_fault(heap, c)) return fault;
    if (const Fault fault = find_sampling_bin_fault(heap, c)) return fault;
    if (const Fault fault = find_class_fault(heap, c)) return fault;
  }
  if (const Fault fault = find_spare_list_fault(heap)) return fault;
  if (const Fault fault = find_queue_fault(heap)) return fault;
  for (const RemoteBatch& batch : heap.batches) {
    if (const Fault fault = find_batch_fault(heap, batch)) return fault;
  }
  return {};
}

void check_at_rest(ThreadHeap& heap) noexcept {
  const Fault fault = find_heap_fault(heap);
  require(!fault, fault.equation, fault.where);
}

}  // namespace ts::engine
