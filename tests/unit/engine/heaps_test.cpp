// Slabs, cache bins and refills, on hand-built heaps: one thread uses several heaps in turn.
#include <algorithm>
#include <random>
#include <set>

#include "core/cache_bins.h"
#include "core/slabs.h"
#include "unit/engine/fresh_engine.h"
#include "unit/engine/page_heap_access.h"

namespace ts::testing {
namespace {

// A class of each kind of slab: short and dense, the largest of all, long.
constexpr unsigned small_class = 4;  // 64 bytes
constexpr unsigned last_class = class_for(engine::max_shared_bytes);

// ---- refill ----

TS_ENGINE_TEST(Refill, CarvesAPageOfTheFirstSlabOfEachClass) {
  ThreadHeap& heap = make_heap();
  for (unsigned c = 1; c < class_count; ++c) {
    const SizeClass& k = size_classes[c];
    if (class_for(k.block_bytes) != c) continue;  // any class of the same size will do
    void* const p = allocate(heap, k.block_bytes);
    ASSERT_NE(p, nullptr);
    const Span& slab = span_of(p);
    EXPECT_EQ(heap.slabs[c], 1U);
    EXPECT_EQ(slab.pages, k.first_slab_pages);
    const std::uint32_t carved = std::min<std::uint32_t>(k.carve_blocks, slab.slab_blocks);
    EXPECT_EQ(slab.carved, carved);
    EXPECT_EQ(used_by(slab), carved);
    EXPECT_EQ(list_length(heap.bins[c].head), carved - 1);
    EXPECT_EQ(engine::counted_blocks(heap, c), static_cast<std::int32_t>(carved) - 1);
    EXPECT_EQ(engine::count_free_blocks(slab), slab.slab_blocks - carved);
    EXPECT_EQ(is_listed(slab), carved < slab.slab_blocks);
    expect_sound();
  }
}

TS_ENGINE_TEST(Refill, TakesFreeBlocksInTheOrderOfTheirAddresses) {
  ThreadHeap& heap = make_heap();
  have_no_spare_lists(heap);
  const SizeClass& k = size_classes[1];
  std::vector<void*> blocks;
  const std::uint32_t in_slab = engine::blocks_in_slab(k, 1);
  for (std::uint32_t i = 0; i < in_slab; ++i) blocks.push_back(allocate(heap, 16));
  for (void* const p : blocks) release(heap, p);
  flush_bin_of(heap, 1);
  const Span& slab = span_of(blocks[0]);
  EXPECT_EQ(engine::count_free_blocks(slab), in_slab);
  EXPECT_TRUE(engine::is_keyless(slab));
  std::byte* expected = engine::memory_of(&slab);
  while (engine::count_free_blocks(slab) != 0) {
    EXPECT_TRUE(engine::is_keyless(slab));
    EXPECT_EQ(allocate(heap, 16), expected);
    EXPECT_GE(heap.bins[1].capacity_left, 0);
    expected += 16;
    expect_sound();
  }
  EXPECT_FALSE(engine::is_keyless(slab)) << "no block is left that could lack a key";
}

// All blocks of some slabs of the class.
std::vector<std::uintptr_t*> fill_slabs(ThreadHeap& heap, unsigned c, std::uint32_t slabs) {
  std::vector<std::uintptr_t*> blocks;
  const SizeClass& k = size_classes[c];
  const std::uint32_t count = slabs * engine::blocks_in_slab(k, k.first_slab_pages);
  for (std::uint32_t i = 0; i < count; ++i) {
    blocks.push_back(static_cast<std::uintptr_t*>(allocate(heap, k.block_bytes)));
    blocks.back()[0] = blocks.back()[1] = i;
  }
  return blocks;
}

TS_ENGINE_TEST(Slabs, OfABurstOfFreesTakeBlocksWithoutAWordOfThemChanged) {
  for (const unsigned c : {1U, small_class}) {
    ThreadHeap& heap = make_heap();
    have_no_spare_lists(heap);
    const std::vector<std::uintptr_t*> blocks = fill_slabs(heap, c, 8);
    const std::int32_t capacity = heap.capacities[c];
    std::size_t next = 0;
    // The twelfth consecutive free that finds the bin full bypasses it from then on.
    while (heap.bins[c].capacity_left > 0) release(heap, blocks[next++]);
    EXPECT_EQ(engine::counted_blocks(heap, c), capacity);
    for (const std::size_t end = next + 11; next < end;) release(heap, blocks[next++]);
    EXPECT_EQ(engine::counted_blocks(heap, c), capacity);
    expect_sound();
    // A malloc in between restarts the count.
    void* const in_between = allocate(heap, size_classes[c].block_bytes);
    for (const std::size_t end = next + 12; next < end;) release(heap, blocks[next++]);
    EXPECT_EQ(engine::counted_blocks(heap, c), capacity);
    expect_sound();
    while (heap.capacities[c] != 0) release(heap, blocks[next++]);
    EXPECT_EQ(heap.bins[c].head, engine::bypassed_bin());
    release(heap, in_between);
    expect_sound();
    const std::size_t end = next + 3 * engine::blocks_in_slab(size_classes[c], 1) / 2;
    for (; next < end; ++next) {
      const Span& slab = span_of(blocks[next]);
      const bool has_keys = slab.has_keys;  // which it loses with its last block
      const std::uintptr_t before[] = {blocks[next][0], blocks[next][1]};
      release(heap, blocks[next]);
      EXPECT_EQ(blocks[next][0], before[0]);
      if (!has_keys) {
        EXPECT_EQ(blocks[next][1], before[1]);
      }
      EXPECT_TRUE(engine::is_keyless(slab) || slab.state != SpanState::slab);
    }
    EXPECT_FALSE(span_of(blocks[next - 1]).has_keys);
    expect_sound();
    // The call detects a double free of each of them.
    for (std::size_t i = 0; i < next; ++i) {
      if (span_of(blocks[i]).state != SpanState::slab) continue;  // it was returned
      release(heap, blocks[i]);
      expect_misuse(Misuse::double_free, FoundBy::free, blocks[i]);
    }
    expect_sound();
  }
}

TS_ENGINE_TEST(Slabs, HaveTheirFreeBlocksMarkedByAFreeThatABinTakes) {
  ThreadHeap& heap = make_heap();
  have_no_spare_lists(heap);
  const std::vector<std::uintptr_t*> blocks = fill_slabs(heap, small_class, 8);
  std::size_t next = 0;
  do {
    release(heap, blocks[next++]);
  } while (heap.capacities[small_class] != 0);
  for (const std::size_t end = next + 200; next < end;) release(heap, blocks[next++]);
  std::uintptr_t* const freed = blocks[next++];
  release(heap, freed);
  Span& slab = span_of(freed);
  ASSERT_EQ(&span_of(blocks[next]), &slab);
  ASSERT_TRUE(engine::is_keyless(slab) && !engine::has_key(freed));
  ASSERT_TRUE(engine::free_word(slab, 0) != 0 || engine::has_free_block(slab));
  void* const opened = allocate(heap, 64);  // the bin
  ASSERT_TRUE(engine::is_free(engine::place_of(freed, size_classes[small_class])));
  release(heap, freed);
  expect_misuse(Misuse::double_free, FoundBy::free, freed);
  EXPECT_TRUE(engine::is_keyless(slab));
  release(heap, blocks[next]);
  expect_no_misuse();
  EXPECT_EQ(heap.bins[small_class].head, reinterpret_cast<Block*>(blocks[next]));
  EXPECT_TRUE(engine::has_key(freed));
  EXPECT_FALSE(engine::is_keyless(slab));
  for (std::uintptr_t* const p : {freed, blocks[next]}) {
    release(heap, p);
    expect_misuse(Misuse::double_free, FoundBy::free, p);
  }
  expect_sound();
  // Retiring a slab clears the keys.
  for (std::size_t i = next + 1; i < blocks.size(); ++i) release(heap, blocks[i]);
  release(heap, opened);
  flush_heap(heap);
  ASSERT_EQ(heap.slabs[small_class], 0U);
  EXPECT_FALSE(engine::has_key(freed) || engine::has_key(blocks[next]));
}

TS_ENGINE_TEST(Refill, TakesFromSeveralSlabsUntilHalfOfTheBinIsFull) {
  ThreadHeap& heap = make_heap();
  const SizeClass& k = size_classes[small_class];
  std::vector<void*> blocks = allocate_many(heap, 4 * engine::blocks_in_slab(k, 1), k.block_bytes);
  expect_sound();
  // A few blocks of each slab return.
  std::vector<Span*> slabs;
  for (std::size_t i = 0; i < blocks.size(); i += engine::blocks_in_slab(k, 1)) {
    for (std::size_t j = 0; j < 10; ++j) release(heap, blocks[i + j]);
    slabs.push_back(&span_of(blocks[i]));
  }
  flush_bin_of(heap, small_class);
  expect_sound();
  for (const Span* const slab : slabs) EXPECT_EQ(engine::count_free_blocks(*slab), 10U);
  allocate(heap, k.block_bytes);
  EXPECT_EQ(engine::counted_blocks(heap, small_class), 39);
  for (const Span* const slab : slabs) {
    EXPECT_EQ(engine::count_free_blocks(*slab), 0U);
    EXPECT_FALSE(is_listed(*slab));
  }
}

TS_ENGINE_TEST(Refill, TakesAPartOfALongSlab) {
  ThreadHeap& heap = make_heap();
  const unsigned c = long_class();
  const SizeClass& k = size_classes[c];
  std::vector<void*> blocks =
      allocate_many(heap, 3 * engine::blocks_in_slab(k, k.slab_pages), k.block_bytes);
  EXPECT_EQ(heap.slabs[c], 4U);
  Span& slab = *engine::slab_of(blocks.back());
  EXPECT_EQ(slab.pages, k.slab_pages);
  // All blocks of a full long slab but one, so that the slab stays.
  Span& full = *engine::slab_of(blocks[blocks.size() / 2]);
  bool keeps_one = true;
  for (void* const p : blocks) {
    if (engine::slab_of(p) != &full) continue;
    if (!keeps_one) release(heap, p);
    keeps_one = false;
  }
  flush_bin_of(heap, c);
  const std::uint32_t free_before = engine::count_free_blocks(full);
  EXPECT_GT(free_before, k.wide_bin_blocks);
  allocate(heap, k.block_bytes);
  EXPECT_GT(engine::count_free_blocks(full), 0U);
  EXPECT_GE(heap.bins[c].capacity_left, 0);
}

TS_ENGINE_TEST(Refill, CollectsBeforeItTouchesFreshMemory) {
  ThreadHeap& heap = make_heap();
  ThreadHeap& other = make_heap();
  const SizeClass& k = size_classes[small_class];
  const std::uint32_t in_slab = engine::blocks_in_slab(k, 1);
  std::vector<void*> blocks = allocate_many(heap, in_slab, k.block_bytes);
  Span& slab = span_of(blocks[0]);
  EXPECT_FALSE(is_listed(slab));
  for (std::uint32_t i = 0; i < k.carve_blocks; ++i) release(other, blocks[i]);
  EXPECT_EQ(pending_of(slab), k.carve_blocks);
  expect_sound();
  allocate(heap, k.block_bytes);
  EXPECT_EQ(heap.slabs[small_class], 1U);
  EXPECT_EQ(pending_of(slab), 0U);
}

TS_ENGINE_TEST(Refill, OneRefillInTurnCollectsForAllClasses) {
  ThreadHeap& heap = make_heap();
  ThreadHeap& other = make_heap();
  void* const p = allocate(heap, 4096);
  {
    const As as{engine::ended_heap};
    release(p);  // pending at once
  }
  (void)other;
  EXPECT_EQ(pending_of(span_of(p)), 1U);
  for (unsigned i = 0; i < class_count; ++i) {  // each refill of another class checks one bin
    flush_bin_of(heap, 1);
    allocate(heap, 16);
  }
  EXPECT_EQ(pending_of(span_of(p)), 0U);
}

// ---- frees and slabs ----

TS_ENGINE_TEST(Slabs, OneEmptyShortSlabOfAClassStays) {
  ThreadHeap& heap = make_heap();
  const SizeClass& k = size_classes[small_class];
  std::vector<void*> blocks = allocate_many(heap, 3 * engine::blocks_in_slab(k, 1), k.block_bytes);
  EXPECT_EQ(heap.slabs[small_class], 3U);
  for (void* const p : blocks) release(heap, p);
  flush_bin_of(heap, small_class);
  expect_sound();
  EXPECT_EQ(heap.slabs[small_class], 1U);
  EXPECT_EQ(engine::PageHeapTest::dirty().pages(), 2U);
  {
    const HeapHold hold{heap};
    engine::retire_empty_slabs(heap);
  }
  EXPECT_EQ(heap.slabs[small_class], 0U);
  EXPECT_EQ(heap.partial[small_class], nullptr);
  EXPECT_EQ(engine::PageHeapTest::dirty().pages(), 3U);
}

TS_ENGINE_TEST(Slabs, AnEmptyLongSlabIsRetiredThoughItIsTheOnlyOne) {
  ThreadHeap& heap = make_heap();
  const SizeClass& k = size_classes[last_class];
  std::vector<void*> blocks =
      allocate_many(heap, 1 + engine::blocks_in_slab(k, k.slab_pages), k.block_bytes);
  ASSERT_EQ(heap.slabs[last_class], 2U);
  Span* const first = engine::slab_of(blocks[0]);
  ASSERT_LT(first->pages, k.slab_pages);
  // The short first slab is used up, so only the long one is listed.
  for (std::size_t i = 1; i < blocks.size(); ++i) release(heap, blocks[i]);
  flush_bin_of(heap, last_class);
  EXPECT_EQ(heap.slabs[last_class], 1U);
  release(heap, blocks[0]);
  flush_bin_of(heap, last_class);
  EXPECT_EQ(heap.slabs[last_class], 1U) << "a first slab stays";
}

// A bin that holds the only block of a slab is limited by its capacity alone.
TS_ENGINE_TEST(Slabs, ABinThatAlonePinsALongSlabIsFlushed) {
  ThreadHeap& heap = make_heap();
  for (unsigned c = 1; c < engine::first_single_class; ++c) {
    const SizeClass& k = size_classes[c];
    if (k.slab_pages == 1 || class_for(k.block_bytes) != c) continue;
    std::vector<void*> blocks;
    for (std::uint32_t i = 0; i < 1 + 3 * engine::blocks_in_slab(k, k.slab_pages); ++i)
      blocks.push_back(allocate(heap, k.block_bytes));
    const std::uint32_t slabs = heap.slabs[c];
    EXPECT_GE(slabs, 3U);
    for (void* const p : blocks) release(heap, p);
    expect_sound();
    // Without an explicit flush, at most the bin's contents remain.
    std::uint32_t long_ones = 0;
    page_heap.for_each([&](const Span& span) {
      if (span.state == SpanState::slab && span.size_class == c && span.pages > 1 &&
          used_by(span) != 0)
        ++long_ones;
    });
    EXPECT_LE(long_ones, 2U) << c;
    EXPECT_LT(heap.slabs[c], slabs);
    flush_heap(heap);
    expect_sound();
    EXPECT_EQ(heap.slabs[c], 0U);
  }
}

TS_ENGINE_TEST(Slabs, ABlockIsFoundByEachOfItsPages) {
  ThreadHeap& heap = make_heap();
  const SizeClass& k = size_classes[last_class];
  allocate(heap, k.block_bytes);
  for (int i = 0; i < 6; ++i) {
    auto* const p = static_cast<std::byte*>(allocate(heap, k.block_bytes));
    const Span* const slab = engine::slab_of(p);
    for (std::size_t at = 0; at < k.block_bytes; at += 1000) {
      const engine::BlockPlace place = engine::place_of(p + at, k);
      ASSERT_EQ(page_map.spans + place.slab_page, slab);
      ASSERT_EQ(engine::block_at(*slab, place.number), p);
      ASSERT_EQ(place.is_beginning, at == 0);
    }
  }
}

TS_ENGINE_TEST(Slabs, MoreReturnsThanUsesAreReported) {
  ends_sound = false;
  ThreadHeap& heap = make_heap();
  void* const p = allocate(heap, 16);
  Span& slab = span_of(p);
  const std::uint32_t before = used_by(slab);
  {
    const HeapHold hold{heap};
    engine::sub_used(slab, before + 1);
  }
  expect_misuse(Misuse::damaged_list, FoundBy::a_later_call, engine::memory_of(&slab));
  EXPECT_EQ(used_by(slab), 0U);
}

// The state after a longjmp out of a refill.
TS_ENGINE_TEST(Slabs, AnEmptySlabThatLostABlockIsRetired) {
  ThreadHeap& heap = make_heap();
  const std::vector<std::uintptr_t*> blocks = fill_slabs(heap, small_class, 3);
  allocate(heap, 64);
  Span& slab = span_of(blocks[0]);
  for (void* const p : blocks) {
    if (&span_of(p) == &slab && p != blocks[0]) release(heap, p);
  }
  flush_bin_of(heap, small_class);
  {
    const HeapHold hold{heap};
    use_of(slab).used.store(0);
    EXPECT_FALSE(engine::relist_or_retire(heap, slab));
  }
}

// ---- cache bins ----

TS_ENGINE_TEST(CacheBins, OfTheFirstHeapsAreWide) {
  for (std::uint32_t i = 1; i <= engine::max_heaps_with_wide_bins + 2; ++i) {
    ThreadHeap& heap = make_heap();
    EXPECT_EQ(heap.has_wide_bins, i <= engine::max_heaps_with_wide_bins);
    for (unsigned c = 1; c < class_count; ++c) {
      EXPECT_EQ(heap.capacities[c], 0) << "before the first refill";
      EXPECT_EQ(heap.bins[c].capacity_left, 0);
    }
    allocate(heap, 64);
    EXPECT_EQ(heap.capacities[small_class], i <= 16 ? size_classes[small_class].wide_bin_blocks
                                                    : size_classes[small_class].bin_blocks);
    EXPECT_EQ(heap.self >> engine::heap_shift, i);
  }
}

// Blocks of many slabs, freed in an order that makes all slabs sparse at the same time: the last
// blocks stay in a bin and keep their slabs.
TS_ENGINE_TEST(CacheBins, HoldLittleOnceMostSlabsAreSparse) {
  for (int i = 0; i < 100; ++i) make_heap();  // so many that none has spare lists or wide bins
  ThreadHeap& heap = make_heap();
  const SizeClass& k = size_classes[small_class];
  constexpr std::uint32_t slabs = 40;
  std::vector<void*> blocks =
      allocate_many(heap, slabs * engine::blocks_in_slab(k, 1), k.block_bytes);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64{1});
  EXPECT_EQ(heap.capacities[small_class], k.bin_blocks);
  for (void* const p : blocks) release(heap, p);
  EXPECT_EQ(heap.capacities[small_class], 0);
  EXPECT_LE(heap.slabs[small_class], 4U);
  expect_sound();
  // Refills raise the bin's capacity again: in two steps with used blocks, at once with fresh ones.
  allocate(heap, k.block_bytes);
  EXPECT_EQ(heap.capacities[small_class], 2);
  expect_sound();
  for (std::uint32_t i = 0; i < 8 * engine::blocks_in_slab(k, 1); ++i)
    allocate(heap, k.block_bytes);
  EXPECT_EQ(heap.capacities[small_class], k.bin_blocks);
}

TS_ENGINE_TEST(CacheBins, ANarrowBinIsRefilledFromSeveralSlabsUpToItsCapacity) {
  ThreadHeap& heap = make_heap();
  const SizeClass& k = size_classes[small_class];
  std::vector<void*> blocks = allocate_many(heap, 12 * engine::blocks_in_slab(k, 1), k.block_bytes);
  flush_bin_of(heap, small_class);
  // One free block in each slab, and a bin of no capacity.
  heap.capacities[small_class] = 0;
  heap.bins[small_class].capacity_left = 0;
  std::set<Span*> seen;
  for (void* const p : blocks) {
    if (seen.insert(&span_of(p)).second) release(heap, p);
  }
  ASSERT_GE(seen.size(), 12U);
  for (std::uint16_t capacity = 1; capacity <= 3; ++capacity) {
    heap.capacities[small_class] = capacity;
    heap.bins[small_class].capacity_left = capacity;
    allocate(heap, k.block_bytes);
    EXPECT_GE(heap.bins[small_class].capacity_left, 0);
    expect_sound();
    flush_bin_of(heap, small_class);
    expect_sound();
  }
}

// In a process with few threads, which cache little in total, a few slabs are no evidence.
TS_ENGINE_TEST(CacheBins, StayWideWhileAFewSlabsOfFewThreadsAreSparse) {
  ThreadHeap& heap = make_heap();
  const SizeClass& k = size_classes[small_class];
  std::vector<void*> blocks = allocate_many(heap, 40 * engine::blocks_in_slab(k, 1), k.block_bytes);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64{1});
  for (void* const p : blocks) release(heap, p);
  allocate(heap, k.block_bytes);
  EXPECT_EQ(heap.capacities[small_class], k.wide_bin_blocks);
}

TS_ENGINE_TEST(CacheBins, AFlushSendsForeignBlocksToTheirHeap) {
  ThreadHeap& heap = make_heap();
  ThreadHeap& other = make_heap();
  // Blocks that share no cache line stay with the freeing thread.
  std::vector<void*> blocks = allocate_many(heap, 8, 1024);
  const unsigned c = class_for(1024);
  use_class_of(other, 1024);
  for (void* const p : blocks) release(other, p);
  ASSERT_EQ(size_classes[c].block_bytes % cache_line_bytes, 0U);
  EXPECT_EQ(list_length(other.bins[c].head), 8U);
  EXPECT_EQ(pending_of(span_of(blocks[0])), 0U);
  expect_sound();
  flush_heap(other);
  EXPECT_EQ(other.bins[c].head, nullptr);
  expect_sound();
  EXPECT_EQ(pending_of(*engine::slab_of(blocks[0])), 8U);
  EXPECT_TRUE(collect_from(heap));
  expect_sound();
  flush_heap(heap);
  EXPECT_EQ(heap.slabs[c], 0U);
}

TS_ENGINE_TEST(CacheBins, ADamagedListIsReportedByAFlush) {
  ThreadHeap& heap = make_heap();
  allocate(heap, 64);
  auto* const p = static_cast<Block*>(allocate(heap, 64));
  void* const foreign = allocate(heap, 200);
  release(heap, p);
  // A link to a block of another class.
  p->next = static_cast<Block*>(foreign);
  flush_bin_of(heap, small_class);
  expect_misuse(Misuse::damaged_list, FoundBy::a_later_call, foreign);
  // A cycle, whose first block the flush unlinks.
  ThreadHeap& fresh = make_heap();
  auto* const ring = static_cast<Block*>(allocate(fresh, 64));
  release(fresh, ring);
  ring->next = ring;
  flush_bin_of(fresh, small_class);
  expect_misuse(Misuse::damaged_list, FoundBy::a_later_call, ring);
  // A link into the middle of a block.
  auto* const r = static_cast<Block*>(allocate(heap, 64));
  release(heap, r);
  auto* const middle = reinterpret_cast<Block*>(reinterpret_cast<std::byte*>(r) + 32);
  engine::set_key(middle)->next = nullptr;
  r->next = middle;
  flush_bin_of(heap, small_class);
  expect_misuse(Misuse::no_beginning, FoundBy::a_later_call, middle);
  // A write after free that leaves the link intact.
  auto* const written = static_cast<Block*>(allocate(heap, 64));
  release(heap, written);
  written->key = 1;
  flush_bin_of(heap, small_class);
  expect_misuse(Misuse::damaged_list, FoundBy::a_later_call, written);
}

TS_ENGINE_TEST(CacheBins, ARingIsReportedByTheMallocThatComesToItsBeginning) {
  ThreadHeap& heap = make_heap();
  auto* const p = static_cast<Block*>(allocate(heap, 64));
  release(heap, p);
  p->next = p;
  EXPECT_EQ(allocate(heap, 64), p);
  expect_no_misuse();
  EXPECT_NE(allocate(heap, 64), p);
  expect_misuse(Misuse::damaged_list, FoundBy::a_later_call, p);
}

// The state after a longjmp out of a refill.
TS_ENGINE_TEST(CacheBins, AListThatIsLongerThanItsCountIsNoDamage) {
  for (const bool flushes : {true, false}) {
    ThreadHeap& heap = make_heap();
    void* const p = allocate(heap, 64);
    const engine::CacheBin& bin = heap.bins[small_class];
    heap.bins[small_class].capacity_left = heap.capacities[small_class];
    if (flushes) {
      flush_bin_of(heap, small_class);
    } else {
      while (bin.head != nullptr) allocate(heap, 64);
      EXPECT_LT(engine::counted_blocks(heap, small_class), -3);
      allocate(heap, 64);
    }
    expect_no_misuse();
    const Span& slab = span_of(p);
    EXPECT_EQ(engine::used(slab), flushes ? 1U : slab.carved);
    expect_sound();
  }
}

TS_ENGINE_TEST(CacheBins, ALinkToNowhereIsReportedByARefill) {
  ThreadHeap& heap = make_heap();
  allocate(heap, 64);
  // The second fault: a list shorter than its count.
  for (const std::uintptr_t address : {std::uintptr_t{0x1000}, std::uintptr_t{0}}) {
    auto* const nowhere = reinterpret_cast<Block*>(unrelated(address));  // or compilers warn
    heap.bins[small_class].head = nowhere;
    EXPECT_NE(allocate(heap, 64), nullptr);
    expect_misuse(Misuse::damaged_list, FoundBy::a_later_call, nowhere);
  }
}

// The state after damage, or after a longjmp out of a purge.
TS_ENGINE_TEST(CacheBins, AListedSlabWithoutBlocksGivesNone) {
  for (const unsigned c : {small_class, long_class(), last_class}) {
    ThreadHeap& heap = make_heap();
    const SizeClass& k = size_classes[c];
    std::vector<void*> blocks;
    const std::size_t in_slab = engine::blocks_in_slab(k, k.first_slab_pages);
    while (blocks.size() < in_slab || heap.bins[c].head != nullptr)
      blocks.push_back(allocate(heap, k.block_bytes));
    Span& slab = *engine::slab_of(blocks[0]);
    ASSERT_TRUE(slab.carved == slab.slab_blocks && !is_listed(slab));
    {
      const HeapHold hold{heap};
      engine::link_partial(heap, slab);
    }
    ASSERT_EQ(heap.partial[c], &slab);
    EXPECT_NE(engine::slab_of(allocate(heap, k.block_bytes)), &slab);
    EXPECT_EQ(slab.carved, slab.slab_blocks);
    expect_no_misuse();
    expect_sound();
  }
}

// The child of a fork may see the block's bit without the count, and then counts one used block too
// many forever.
TS_ENGINE_TEST(CacheBins, AFreeThatAForkCutOffBeforeItsCountIsNoDamage) {
  for (const bool is_long : {false, true}) {
    const SizeClass& k = size_classes[is_long ? long_class() : small_class];
    const auto c = static_cast<unsigned>(&k - size_classes.data());
    for (const std::uint16_t bypassed_refills : {std::uint16_t{0}, std::uint16_t{5}}) {
      for (const std::size_t counted : {0U, 1U}) {
        ThreadHeap& heap = make_heap();
        std::vector<void*> blocks;
        const std::size_t in_slab = engine::blocks_in_slab(k, k.first_slab_pages);
        while (blocks.size() < in_slab || heap.bins[c].head != nullptr)
          blocks.push_back(allocate(heap, k.block_bytes));
        Span& slab = *engine::slab_of(blocks[0]);
        ASSERT_TRUE(slab.carved == slab.slab_blocks);
        for (std::size_t i = 0; i < counted; ++i) release(heap, blocks[1 + i]);
        flush_bin_of(heap, c);
        void* const cut_off = blocks[0];
        engine::set_free(slab, engine::place_of(cut_off, k).number);
        engine::set_keyless(slab, true);
        if (!is_listed(slab)) {
          const engine::HeapHold hold{heap};
          engine::relist_or_retire(heap, slab);
        }
        heap.bypassed_refills = bypassed_refills;
        heap.from_fork = true;
        std::set<void*> in_use(blocks.begin() + 1 + static_cast<std::ptrdiff_t>(counted),
                               blocks.end());
        for (std::size_t i = 0; i < 2 * in_slab; ++i)
          EXPECT_TRUE(in_use.insert(allocate(heap, k.block_bytes)).second);
        EXPECT_GE(used_by(slab), slab.slab_blocks);
        expect_no_misuse();
        expect_sound("when other blocks are in use");
      }
    }
  }
}

TS_ENGINE_TEST(CacheBins, ARecountFindsTheLengthOrDropsARing) {
  ThreadHeap& heap = make_heap();
  void* const p = allocate(heap, 64);
  const std::int32_t before = heap.bins[small_class].capacity_left;
  heap.bins[small_class].capacity_left += 1;  // cut off by a fork
  auto* const q = static_cast<Block*>(allocate(heap, 200));
  q->next = q;
  heap.bins[class_for(200)].head = q;
  engine::recount_bins(heap);
  EXPECT_EQ(heap.bins[small_class].capacity_left, before);
  EXPECT_EQ(heap.bins[class_for(200)].head, nullptr);
  release(heap, p);
}

// ---- holds ----

TS_ENGINE_TEST(HeapHolds, Nest) {
  ThreadHeap& heap = make_heap();
  {
    const HeapHold outer{heap};
    EXPECT_EQ(heap.holder.load(), engine::Holder::owner);
    {
      const HeapHold inner{heap};
      EXPECT_FALSE(engine::try_hold(heap, engine::Holder::reclaimer));
    }
    EXPECT_EQ(heap.holder.load(), engine::Holder::owner);
  }
  EXPECT_EQ(heap.holder.load(), engine::Holder::none);
}

}  // namespace
}  // namespace ts::testing
