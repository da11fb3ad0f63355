// Lists of full bins that bursts of frees set aside.
#include "core/spare_lists.h"

#include <algorithm>
#include <random>
#include <vector>

#include "core/reclaim_all.h"
#include "core/remote_frees.h"
#include "core/slabs.h"
#include "core/view.h"
#include "unit/engine/fresh_engine.h"

namespace ts::testing {
namespace {

constexpr std::size_t bytes = 128;
constexpr unsigned size_class = class_for(bytes);

// Blocks of a heap, enough for this many lists and half a bin.
std::vector<void*> allocate_for(ThreadHeap& heap, std::uint32_t lists) {
  const std::uint32_t of_list = engine::max_bin_capacity(heap, size_classes[size_class]);
  std::vector<void*> blocks;
  for (std::uint32_t i = 0; i < lists * of_list + of_list / 2; ++i)
    blocks.push_back(allocate(heap, bytes));
  return blocks;
}

void release_all(ThreadHeap& heap, const std::vector<void*>& blocks) {
  for (void* const p : blocks) release(heap, p);
}

// The heap has this many lists of blocks of this size.
std::vector<void*> put_lists_aside(ThreadHeap& heap, std::uint32_t lists) {
  std::vector<void*> blocks = allocate_for(heap, lists);
  release_all(heap, blocks);
  EXPECT_EQ(heap.spare_list_count, lists);
  expect_sound();
  return blocks;
}

void look_after_classes(ThreadHeap& heap, int times) {
  for (int i = 0; i < engine::refills_per_look * times; ++i) {
    release(heap, allocate(heap, 16));
    flush_bin_of(heap, 1);
  }
}

TS_ENGINE_TEST(SpareLists, ABurstAndTheMallocsAfterItMoveNoBlock) {
  ThreadHeap& heap = make_heap();
  const std::vector<void*> blocks = put_lists_aside(heap, 30);
  EXPECT_EQ(heap.spare_lists_of[size_class], 30);
  const std::uint32_t slabs = heap.slabs[size_class];
  std::uint32_t free = 0;
  for (const Span* slab = heap.partial[size_class]; slab != nullptr; slab = slab->next)
    free += engine::count_free_blocks(*slab) - (slab->slab_blocks - slab->carved);
  EXPECT_LE(free, 20U) << "what found the bin full before the burst was recognised";
  EXPECT_EQ(allocate(heap, bytes), blocks.back());
  for (std::size_t i = 1; i < blocks.size(); ++i) allocate(heap, bytes);
  EXPECT_EQ(heap.spare_list_count, 0U);
  EXPECT_EQ(heap.slabs[size_class], slabs);
}

TS_ENGINE_TEST(SpareLists, TheirBlocksAreFoundWhenFreedAgain) {
  ThreadHeap& heap = make_heap();
  ThreadHeap& other = make_heap();
  const std::vector<void*> blocks = put_lists_aside(heap, 5);
  for (const std::size_t i : {std::size_t{0}, blocks.size() / 2, blocks.size() - 1}) {
    release(heap, blocks[i]);
    expect_misuse(Misuse::double_free, FoundBy::free, blocks[i]);
  }
  void* const in_list = blocks[100];
  release(other, in_list);
  engine::flush_batches(other);
  collect_from(heap);
  expect_misuse(Misuse::double_free, FoundBy::a_later_call, in_list);
}

TS_ENGINE_TEST(SpareLists, AnOverwrittenBlockIsReported) {
  ThreadHeap& heap = make_heap();
  const std::vector<void*> blocks = put_lists_aside(heap, 3);
  static_cast<Block*>(blocks[100])->key = 0;
  ends_sound = false;  // the rest of the list is lost
  flush_heap(heap);
  expect_misuse(Misuse::damaged_list, FoundBy::a_later_call, blocks[100]);
}

// The look at whether a list is in order follows no link that the program overwrote.
TS_ENGINE_TEST(SpareLists, AnOverwrittenLinkIsNotFollowed) {
  ThreadHeap& heap = make_heap();
  put_lists_aside(heap, 40);
  auto* const last_freed = static_cast<Block*>(engine::first_block(heap.bins[size_class]));
  ASSERT_NE(last_freed, nullptr);
  last_freed->next = reinterpret_cast<Block*>(std::uintptr_t{8});
  ends_sound = false;  // the rest of the list is lost
  const HeapHold hold{heap};
  EXPECT_FALSE(engine::put_aside(heap, size_class));
  EXPECT_EQ(engine::first_block(heap.bins[size_class]), last_freed);
}

TS_ENGINE_TEST(SpareLists, ABurstThatIsTooLargeReturnsItsBlocks) {
  ThreadHeap& heap = make_heap();
  const std::vector<void*> blocks = allocate_for(heap, 100);
  release_all(heap, blocks);
  EXPECT_EQ(heap.spare_list_count, 0U);
  EXPECT_EQ(heap.capacities[size_class], 0U) << "the bin is bypassed";
  EXPECT_LE(heap.slabs[size_class], 1U);
}

// A class alone, whose blocks were freed at random, has few lists: mallocs would wait for each block.
TS_ENGINE_TEST(SpareLists, BlocksHereAndThereGoToTheirSlabs) {
  ThreadHeap& heap = make_heap();
  std::vector<void*> blocks = allocate_for(heap, 50);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64{1});
  release_all(heap, blocks);
  EXPECT_EQ(heap.spare_list_count, 0U);
  EXPECT_EQ(heap.capacities[size_class], 0U) << "the bin is bypassed";
  EXPECT_LE(heap.slabs[size_class], 1U);
  expect_sound();

  blocks = allocate_for(heap, 20);
  std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64{1});
  for (int burst = 0; burst < 100 && heap.spare_list_count == 0; ++burst) {
    release_all(heap, blocks);
    if (heap.spare_list_count != 0) break;
    blocks = allocate_for(heap, 20);
  }
  EXPECT_EQ(heap.spare_list_count, 20U) << "which fit in a cache";
}

// A few bursts later, the heap may have twice as many lists.
TS_ENGINE_TEST(SpareLists, BurstsThatGoOnAreAllowedMore) {
  ThreadHeap& heap = make_heap();
  int bursts = 0;
  do {
    release_all(heap, allocate_for(heap, 100));
    ASSERT_LT(++bursts, 7);
  } while (heap.spare_list_count == 0);
  EXPECT_EQ(heap.spare_list_count, 100U);
  EXPECT_GT(bursts, 4);
  for (int i = 0; i < 40; ++i) release_all(heap, allocate_for(heap, engine::max_spare_lists));
  EXPECT_EQ(heap.spare_list_count, engine::max_spare_lists);
  // Never more than 25 MiB.
  for (int i = 0; i < 40; ++i) release_all(heap, allocate_for(heap, engine::max_spare_lists + 10));
  EXPECT_EQ(heap.spare_list_count, 0U);
}

TS_ENGINE_TEST(SpareLists, WhatNobodyWantsBackReturnsToItsSlabs) {
  ThreadHeap& heap = make_heap();
  use_class_of(heap, 16);
  put_lists_aside(heap, 20);
  // As often as while all the lists that a heap may have are allocated.
  const int looks = engine::max_spare_lists / engine::refills_per_look + 1;
  look_after_classes(heap, looks);
  EXPECT_EQ(heap.spare_list_count, 20U);
  look_after_classes(heap, 2);
  EXPECT_EQ(heap.spare_list_count, 0U);
  EXPECT_LE(heap.slabs[size_class], 2U) << "the bin has its list";
}

TS_ENGINE_TEST(SpareLists, MemoryDoesNotGrowBesideThem) {
  ThreadHeap& heap = make_heap();
  put_lists_aside(heap, 40);
  page_heap.trim(0);
  const std::size_t before = page_heap.touched_pages();
  for (int i = 0; i < 30; ++i) allocate(heap, engine::page_bytes);
  EXPECT_LT(heap.spare_list_count, 12U);
  EXPECT_LT(page_heap.touched_pages(), before + 8);
}

TS_ENGINE_TEST(SpareLists, OthersTakeThoseOfAnIdleThread) {
  ThreadHeap& heap = make_heap();
  put_lists_aside(heap, 40);
  for (int i = 0; i < 4; ++i) engine::reclaim_idle();
  EXPECT_EQ(heap.spare_list_count, 40U);
  {
    const HeapHold hold{heap};
    EXPECT_FALSE(engine::reclaim_all());
  }
  EXPECT_EQ(heap.spare_list_count, 40U);
  engine::reclaim_idle();
  EXPECT_EQ(heap.spare_list_count, 0U);
  expect_sound();
  EXPECT_LE(heap.slabs[size_class], 2U);

  put_lists_aside(heap, 40);
  EXPECT_TRUE(engine::reclaim_all());
  EXPECT_EQ(heap.spare_list_count, 0U);
}

// Blocks of whole cache lines stay in the freeing thread's bin.
TS_ENGINE_TEST(SpareLists, HaveBlocksOfOtherHeapsToo) {
  ThreadHeap& owner = make_heap();
  ThreadHeap& heap = make_heap();
  use_class_of(heap, bytes);
  allocate(heap, bytes);
  const std::uint32_t of_list = engine::max_bin_capacity(heap, size_classes[size_class]);
  const std::vector<void*> blocks = allocate_for(owner, 0);
  for (std::uint32_t i = 0; i < of_list / 2; ++i) release(heap, blocks[i]);
  put_lists_aside(heap, 3);
  EXPECT_TRUE(engine::reclaim_all());
  EXPECT_EQ(heap.spare_list_count, 0U);
}

TS_ENGINE_TEST(SpareLists, AreForFewHeapsAndSmallBlocks) {
  ThreadHeap& heap = make_heap();
  std::vector<void*> large;
  const unsigned c = long_class();
  for (int i = 0; i < 200; ++i) large.push_back(allocate(heap, size_classes[c].block_bytes));
  release_all(heap, large);
  EXPECT_EQ(heap.spare_list_count, 0U);
  for (int i = 0; i < 100; ++i) make_heap();
  release_all(heap, allocate_for(heap, 10));
  EXPECT_EQ(heap.spare_list_count, 0U);
}

TS_ENGINE_TEST(SpareLists, CountAsCached) {
  ThreadHeap& heap = make_heap();
  const std::vector<void*> blocks = put_lists_aside(heap, 10);
  std::size_t cached = 0;
  engine::walk_blocks(
      [](const BlockView& block, void* count) {
        *static_cast<std::size_t*>(count) += block.state == BlockState::cached ? 1 : 0;
        return true;
      },
      &cached);
  EXPECT_GE(cached, blocks.size() - 20);
}

}  // namespace
}  // namespace ts::testing
