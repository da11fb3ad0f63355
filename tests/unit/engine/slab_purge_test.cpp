// Sparse slabs: which OS pages are purged, which blocks the lists keep, how purged blocks are used
// again, and when a heap's owner does all that.
#include "features/sparse/slab_purge.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/heap_lifecycle.h"
#include "core/invariants.h"
#include "core/page_heap.h"
#include "core/slabs.h"
#include "core/sparse_slabs.h"
#include "core/view.h"
#include "features/sparse/scavenge.h"
#include "unit/engine/fresh_engine.h"

namespace ts::testing {
namespace {

void purge(ThreadHeap& heap, Span& slab) {
  engine::SlabPurge purge;
  {
    const engine::HeapHold hold{heap};
    engine::begin_purge(heap, slab, purge);
  }
  if (purge.to_purge == 0) return;
  EXPECT_EQ(used_by(slab) + engine::count_free_blocks(slab), slab.slab_blocks)
      << "blocks under which pages go are not free meanwhile";
  const std::uint64_t gone = engine::discard(purge);
  const engine::HeapHold hold{heap};
  engine::end_purge(heap, purge, gone);
}

void scavenge_at(ThreadHeap& heap, std::uint64_t milliseconds) {
  fake_os::answers.clock = milliseconds;
  engine::scavenge(heap);
}

// Whether a slab of one page can contain an OS page that no used block overlaps.
bool has_short_pages() { return engine::os_pages_in_page() > 1; }
bool has_purges() { return engine::os_pages_in_page() != 0; }

std::size_t discarded_since(std::size_t before) { return fake_os::discarded_bytes() - before; }

// Blocks of one class that fill some slabs of a heap, with an empty bin.
struct Filled {
  ThreadHeap& heap = make_heap();
  unsigned size_class;
  std::vector<std::byte*> blocks;

  Filled(unsigned of_class, std::uint32_t slabs) : size_class{of_class} {
    have_no_spare_lists(heap);  // each free reaches its slab
    const std::size_t bytes = size_classes[of_class].block_bytes;
    while (heap.slabs[of_class] < slabs) take(bytes);
    while (last().carved < last().slab_blocks || heap.bins[of_class].head != nullptr) take(bytes);
  }

  void take(std::size_t bytes) {
    blocks.push_back(static_cast<std::byte*>(allocate(heap, bytes)));
    std::memset(blocks.back(), 0x5a, bytes);
  }
  Span& last() { return *engine::slab_of(blocks.back()); }

  // Frees all blocks except where `stays(number in its slab)`, and empties the bin.
  template <class Stays>
  void free_unless(Stays stays) {
    const engine::SizeClass& c = size_classes[size_class];
    std::vector<std::byte*> left;
    for (std::byte* const block : blocks) {
      if (stays(engine::place_of(block, c).number)) {
        left.push_back(block);
      } else {
        release(heap, block);
      }
    }
    blocks = left;
    flush_bin_of(heap, size_class);
  }

  bool are_whole() const {
    const std::size_t bytes = size_classes[size_class].block_bytes;
    return std::ranges::all_of(blocks, [bytes](const std::byte* block) {
      return std::all_of(block, block + bytes, [](std::byte b) { return b == std::byte{0x5a}; });
    });
  }
};

// How many bytes of OS pages no block of `used` overlaps.
std::size_t unused_bytes(const Span& slab, const std::set<std::uint32_t>& used) {
  const std::size_t bytes = size_classes[slab.size_class].block_bytes;
  std::set<std::size_t> pages;
  for (const std::uint32_t number : used) {
    for (std::size_t at = number * bytes; at < (number + 1) * bytes; ++at)
      pages.insert(at / os::page_bytes());
  }
  return slab.pages * page_bytes - pages.size() * os::page_bytes();
}

}  // namespace

TS_ENGINE_TEST(SlabPurge, OfEachClassGivesBackWhatNoUsedBlockOverlaps) {
  if (!has_purges()) return;
  std::mt19937 random{1};
  for (unsigned c = 1; c < class_count; ++c) {
    const std::uint32_t blocks =
        engine::blocks_in_slab(size_classes[c], size_classes[c].first_slab_pages);
    if (blocks < 2 || engine::class_for(size_classes[c].block_bytes) != c) continue;
    Filled filled{c, 1};
    Span& slab = filled.last();
    std::set<std::uint32_t> used{static_cast<std::uint32_t>(random() % blocks)};
    if (blocks > 16) used.insert(static_cast<std::uint32_t>(random() % blocks));
    filled.free_unless([&](std::uint32_t number) { return used.contains(number); });
    const std::size_t before = fake_os::discarded_bytes();
    purge(filled.heap, slab);
    ASSERT_EQ(discarded_since(before), unused_bytes(slab, used)) << "class " << c;
    ASSERT_EQ(used_by(slab) + engine::count_free_blocks(slab), slab.slab_blocks);
    expect_sound("after a purge");
    ASSERT_TRUE(filled.are_whole());
    // A second purge finds nothing.
    const std::uint32_t purged_blocks = slab.purged_blocks;
    purge(filled.heap, slab);
    ASSERT_EQ(slab.purged_blocks, purged_blocks);
    expect_sound("after a second purge");
    // All blocks are used again before the heap gets another slab.
    while (used_by(slab) != slab.slab_blocks) filled.take(size_classes[c].block_bytes);
    while (filled.heap.bins[c].head != nullptr) filled.take(size_classes[c].block_bytes);
    EXPECT_EQ(filled.heap.slabs[c], 1U) << "class " << c;
    EXPECT_EQ(slab.purged_blocks, 0U);
    const std::set<std::byte*> once(filled.blocks.begin(), filled.blocks.end());
    ASSERT_EQ(once.size(), filled.blocks.size()) << "a block was given twice, of class " << c;
    ASSERT_TRUE(filled.are_whole());
    expect_sound("after all blocks were used again");
  }
}

// The state after a longjmp out of a signal handler: no block is free, and pages and counts
// disagree.
TS_ENGINE_TEST(SlabPurge, ThatNeverReturnsLosesBlocksAndGivesNoneTwice) {
  if (!has_short_pages()) return;
  const unsigned c = engine::class_for(848);
  for (const bool keeps_pages : {true, false}) {
    for (const std::uint16_t purged_blocks : {std::uint16_t{1}, std::uint16_t{1000}}) {
      Filled filled{c, 2};
      Span& slab = filled.last();
      filled.free_unless([](std::uint32_t number) { return number == 7; });
      purge(filled.heap, slab);
      ASSERT_GT(slab.purged_blocks, 1U);
      for (std::size_t i = 0; i < engine::words_of(slab); ++i)
        engine::free_word_of(slab, i).store(0);
      slab.purged_blocks = purged_blocks;
      for (std::uint32_t i = 0; i < slab.pages && !keeps_pages; ++i) (&slab)[i].purged = 0;
      for (std::uint32_t i = 0; i < 3U * slab.slab_blocks; ++i)
        filled.take(size_classes[c].block_bytes);
      const std::set<std::byte*> once(filled.blocks.begin(), filled.blocks.end());
      EXPECT_EQ(once.size(), filled.blocks.size());
      EXPECT_TRUE(filled.are_whole());
      EXPECT_EQ(slab.purged_blocks, 0U);
      filled.free_unless([](std::uint32_t) { return false; });
      flush_heap(filled.heap);
      EXPECT_EQ(filled.heap.slabs[c], 0U);
      expect_no_misuse();
      expect_sound();
    }
  }
}

TS_ENGINE_TEST(SlabPurge, LeavesBlocksThatWereNeverCarved) {
  ThreadHeap& heap = make_heap();
  void* const p = allocate(heap, 48);
  Span& slab = span_of(p);
  ASSERT_LT(slab.carved, slab.slab_blocks);
  release(heap, p);
  flush_bin_of(heap, engine::class_for(48));
  const std::size_t before = fake_os::discarded_bytes();
  purge(heap, slab);
  // The carved blocks end in the first OS page.
  EXPECT_EQ(discarded_since(before), 0U);
  EXPECT_EQ(slab.purged_blocks, 0U);
}

TS_ENGINE_TEST(SlabPurge, PartlyRefusedPurgesThatPart) {
  if (!has_short_pages()) return;
  Filled filled{engine::class_for(848), 1};
  Span& slab = filled.last();
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  unsigned calls = 0;
  fake_os::refuse_if([&](const fake_os::Request& request) {
    return request.call == fake_os::Call::discard && ++calls == 2;
  });
  const std::size_t before = fake_os::discarded_bytes();
  purge(filled.heap, slab);
  EXPECT_EQ(calls, 2U);
  EXPECT_EQ(discarded_since(before), os::page_bytes());
  EXPECT_NE(slab.purged_blocks, 0U);
  EXPECT_GT(engine::count_free_blocks(slab), slab.purged_blocks);
  expect_sound();
  purge(filled.heap, slab);
  EXPECT_EQ(discarded_since(before), unused_bytes(slab, {7}));
}

// A listed block may reach into a purged OS page, which becomes resident again when the block is
// used.
TS_ENGINE_TEST(SlabPurge, APageThatAListedBlockReachesIntoIsPurgedAgain) {
  if (!has_short_pages()) return;
  Filled filled{engine::class_for(848), 1};
  Span& slab = filled.last();
  // Block 4 begins in OS page 0, which block 0 keeps, and ends in page 1.
  filled.free_unless([](std::uint32_t number) { return number == 0; });
  purge(filled.heap, slab);
  ASSERT_EQ(slab.purged & 3, 2);
  std::byte* const straddler = engine::block_at(slab, 4);
  while (filled.blocks.back() != straddler) filled.take(848);
  ASSERT_EQ(slab.purged & 3, 2);
  filled.free_unless([](std::uint32_t number) { return number == 0; });
  fake_os::take_events();
  purge(filled.heap, slab);
  bool is_again = false;
  for (const fake_os::Event& event : fake_os::take_events())
    is_again |= event.call == fake_os::Call::discard &&
                event.begin == engine::memory_of(&slab) + os::page_bytes();
  EXPECT_TRUE(is_again);
}

TS_ENGINE_TEST(SlabPurge, PurgedBlocksAreFreeToAWalkAndByTheirAddresses) {
  if (!has_short_pages()) return;
  Filled filled{engine::class_for(848), 1};
  Span& slab = filled.last();
  const HeapMeasures before = engine::measure();
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  purge(filled.heap, slab);
  ASSERT_NE(slab.purged_blocks, 0U);
  EXPECT_GT(engine::measure().returned_bytes, before.returned_bytes);
  for (const std::uint32_t number : {7U, 17U}) {
    BlockView block;
    MapExtent pages;
    ASSERT_TRUE(engine::find_block(engine::block_at(slab, number), block, pages));
    EXPECT_EQ(block.state, number == 7 ? BlockState::used : BlockState::free);
  }
  struct Seen {
    std::uint32_t free = 0, used = 0;
  } seen;
  engine::walk_blocks(
      [](const BlockView& block, void* to) {
        if (block.bytes == size_classes[engine::class_for(848)].block_bytes)
          ++(block.state == BlockState::used ? static_cast<Seen*>(to)->used
                                             : static_cast<Seen*>(to)->free);
        return true;
      },
      &seen);
  EXPECT_EQ(seen.used, 1U);
  EXPECT_EQ(seen.free, slab.carved - 1U);
}

TS_ENGINE_TEST(SlabPurge, ASlabWithPurgedBlocksIsReclaimedAndRetired) {
  if (!has_short_pages()) return;
  Filled filled{engine::class_for(848), 2};
  ThreadHeap& other = make_heap();
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  Span& slab = *engine::slab_of(filled.blocks[0]);
  purge(filled.heap, slab);
  ASSERT_NE(slab.purged_blocks, 0U);
  for (std::byte* const block : filled.blocks) release(other, block);
  engine::flush_batches(other);
  engine::Engine{}.trim(0);
  expect_sound();
  EXPECT_LE(filled.heap.slabs[filled.size_class], 1U);
  // The pages of the retired slab start afresh.
  const Filled again{filled.size_class, 2};
  EXPECT_TRUE(again.are_whole());
}

// ---- rounds ----

TS_ENGINE_TEST(Scavenging, PurgesWhatStayedSparseThroughARound) {
  if (!has_short_pages()) return;
  const unsigned c = engine::class_for(848);
  Filled filled{c, 2 * engine::min_sparse_queue_pages};
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  ASSERT_GE(filled.heap.sparse_pages, engine::min_sparse_queue_pages);
  const std::size_t before = fake_os::discarded_bytes();
  scavenge_at(filled.heap, 1000);
  EXPECT_EQ(discarded_since(before), 0U);
  scavenge_at(filled.heap, 1100);
  EXPECT_EQ(discarded_since(before), 0U) << "the round has not ended";
  // The clock of this system stands still within a call, so the call does not stop early.
  scavenge_at(filled.heap, 1300);
  EXPECT_GT(discarded_since(before), engine::min_sparse_queue_pages * page_bytes);
  EXPECT_EQ(filled.heap.first_sparse, 0U);
  EXPECT_EQ(filled.heap.sparse_pages, 0U);
  EXPECT_EQ(filled.heap.bypassed_refills, 0U);
  EXPECT_TRUE(filled.are_whole());
}

// A slab that continues to empty is checked again each time it halves.
TS_ENGINE_TEST(Scavenging, PurgesAgainWhatGoesOnEmptying) {
  if (!has_short_pages()) return;
  const unsigned c = engine::class_for(848);
  Filled filled{c, 2 * engine::min_sparse_queue_pages};
  const std::size_t before = fake_os::discarded_bytes();
  std::size_t discarded = 0;
  std::uint64_t now = 1000;
  for (const std::uint32_t left : {4U, 2U, 1U}) {
    filled.free_unless([&](std::uint32_t number) { return number % 4 == 0 && number / 4 < left; });
    for (int i = 0; i < 4; ++i) scavenge_at(filled.heap, now += 300);
    EXPECT_GT(discarded_since(before), discarded) << left << " stay";
    discarded = discarded_since(before);
    expect_sound();
  }
  EXPECT_GE(discarded, 2 * engine::min_sparse_queue_pages * (page_bytes - os::page_bytes()));
}

TS_ENGINE_TEST(Scavenging, PurgesWhatAnAbandonedHeapLeft) {
  if (!has_short_pages()) return;
  Filled filled{engine::class_for(848), 40};
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  abandon(filled.heap, false);
  const std::size_t before = fake_os::discarded_bytes();
  unsigned calls = 1;
  while (engine::purge_abandoned()) ++calls;
  EXPECT_GT(calls, 2U) << "the lock is let go between";
  EXPECT_EQ(filled.heap.first_sparse, 0U);
  EXPECT_GE(discarded_since(before), 38 * 3 * os::page_bytes());
}

TS_ENGINE_TEST(Scavenging, LetsThreadsBeginAndEndWhileItPurgesWhatAnAbandonedHeapLeft) {
  if (!has_short_pages()) return;
  ThreadHeap& other = make_heap();
  Filled filled{engine::class_for(848), 40};
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  abandon(other, false);
  abandon(filled.heap, false);
  unsigned begun = 0;
  fake_os::refuse_if([&](const fake_os::Request&) {
    if (engine::ThreadHeap* const heap = engine::adopt_abandoned(); heap != nullptr) {
      EXPECT_EQ(heap, &other) << "of which nothing is purged";
      abandon(*heap, false);
      ++begun;
    }
    return false;
  });
  while (engine::purge_abandoned()) continue;
  fake_os::refuse_if(nullptr);
  EXPECT_GT(begun, 0U);
  EXPECT_EQ(filled.heap.first_sparse, 0U);
}

TS_ENGINE_TEST(Scavenging, LeavesASlabThatIsUsedAgain) {
  if (!has_purges()) return;
  const unsigned c = engine::class_for(848);
  Filled filled{c, 2 * engine::min_sparse_queue_pages};
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  const std::uint32_t low = filled.heap.sparse_pages;
  for (int i = 0; i < 40; ++i) filled.take(size_classes[c].block_bytes);
  EXPECT_LT(filled.heap.sparse_pages, low);
}

TS_ENGINE_TEST(Scavenging, WithFewSparseSlabsBypassesNoBins) {
  const unsigned c = engine::class_for(848);
  Filled filled{c, 3};
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  ASSERT_FALSE(engine::has_to_scavenge(filled.heap));
  for (int i = 0; i < 1000; ++i) release(filled.heap, allocate(filled.heap, 64));
  EXPECT_EQ(filled.heap.bypassed_refills, 0U);
  EXPECT_EQ(filled.heap.round, 0U);
}

TS_ENGINE_TEST(Scavenging, BeforeAWaitSaysWhenItHasToBeDoneAgain) {
  if (!has_short_pages()) return;
  Filled filled{engine::class_for(848), 2 * engine::min_sparse_queue_pages};
  const auto scavenge_before_wait_at = [&](std::uint64_t milliseconds) {
    fake_os::answers.clock = milliseconds;
    const engine::HeapHold hold{filled.heap};
    return engine::scavenge_before_wait(filled.heap);
  };
  EXPECT_EQ(scavenge_before_wait_at(1000), -1) << "nothing is sparse";
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  const std::size_t before = fake_os::discarded_bytes();
  EXPECT_EQ(scavenge_before_wait_at(1100), 100) << "frees began a round";
  EXPECT_EQ(scavenge_before_wait_at(1150), 50);
  EXPECT_EQ(discarded_since(before), 0U);
  EXPECT_EQ(scavenge_before_wait_at(1200), 200);
  EXPECT_EQ(scavenge_before_wait_at(1400), -1);
  EXPECT_GT(discarded_since(before), engine::min_sparse_queue_pages * page_bytes);
  EXPECT_TRUE(filled.are_whole());
}

// A program that uses a few small blocks now and then visits until the work is done.
TS_ENGINE_TEST(Scavenging, AHeartbeatComesByThroughClosedBins) {
  if (!has_short_pages()) return;
  const unsigned c = engine::class_for(848);
  Filled filled{c, 2 * engine::min_sparse_queue_pages};
  release(filled.heap, allocate(filled.heap, 64));
  fake_os::answers.clock = 1000;
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  const std::size_t before = fake_os::discarded_bytes();
  for (unsigned at = 1100; at <= 3000; at += 100) {
    fake_os::answers.clock = at;
    for (int i = 0; i < 100; ++i) release(filled.heap, allocate(filled.heap, 64));
  }
  EXPECT_GT(discarded_since(before), engine::min_sparse_queue_pages * page_bytes);
  EXPECT_EQ(filled.heap.first_sparse, 0U);
  EXPECT_EQ(filled.heap.bypassed_refills, 0U);
  // Bins are in use again.
  release(filled.heap, allocate(filled.heap, 64));
  EXPECT_GT(filled.heap.capacities[engine::class_for(64)], 0U);
}

TS_ENGINE_TEST(Scavenging, ABusyProgramOpensItsBins) {
  if (!has_purges()) return;
  const unsigned c = engine::class_for(848);
  Filled filled{c, 2 * engine::min_sparse_queue_pages};
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  scavenge_at(filled.heap, 1000);
  ASSERT_NE(filled.heap.bypassed_refills, 0U);
  const unsigned small = engine::class_for(64);
  EXPECT_EQ(filled.heap.capacities[small], 0U);
  for (int i = 0; i < 1500; ++i) allocate(filled.heap, 64);
  EXPECT_EQ(filled.heap.bypassed_refills, 0U);
  EXPECT_GT(filled.heap.capacities[small], 0U);
}

TS_ENGINE_TEST(Scavenging, SparseSlabsMakeUpForFreshMemory) {
  if (!has_short_pages()) return;
  const unsigned c = engine::class_for(848);
  Filled filled{c, 40};
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  {
    const engine::HeapHold hold{filled.heap};
    filled.heap.round = 2;  // two rounds later
  }
  const std::size_t before = fake_os::discarded_bytes();
  allocate(filled.heap, 10 * page_bytes);
  const std::size_t of_ten = discarded_since(before);
  EXPECT_GE(of_ten, 10 * os::page_bytes());
  EXPECT_LE(of_ten, 10 * page_bytes);
}

TS_ENGINE_TEST(Scavenging, VeryManySparseSlabsMakeUpForItWithoutAWait) {
  if (!has_short_pages()) return;
  constexpr std::size_t very_many = (std::size_t{16} << 20) / page_bytes;
  for (const std::size_t slabs : {very_many / 2, very_many + 20}) {
    Filled filled{engine::class_for(848), static_cast<std::uint32_t>(slabs)};
    filled.free_unless([](std::uint32_t number) { return number == 7; });
    const std::size_t before = fake_os::discarded_bytes();
    allocate(filled.heap, 10 * page_bytes);
    EXPECT_EQ(discarded_since(before) >= 10 * os::page_bytes(), slabs > very_many);
    EXPECT_TRUE(filled.are_whole());
  }
}

TS_ENGINE_TEST(Scavenging, ATrimPurgesAllSparseSlabs) {
  if (!has_short_pages()) return;
  const unsigned c = engine::class_for(848);
  Filled filled{c, 20};
  filled.free_unless([](std::uint32_t number) { return number == 7; });
  const As as{filled.heap};
  engine::Engine{}.trim(0);
  for (const std::byte* const block : filled.blocks)
    EXPECT_NE(engine::slab_of(block)->purged_blocks, 0U);
  EXPECT_TRUE(filled.are_whole());
}

}  // namespace ts::testing
