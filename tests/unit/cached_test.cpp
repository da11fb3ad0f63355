// Strategy `cached`: batches, the rules of balance, and when a cache is emptied.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "unit/clean_system.h"
#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

constexpr std::size_t large = 2000;  // too large to be cached

using CachedHeap = Cached<BestFit>;
struct CachedTest : ::testing::Test {
  void SetUp() override { clean_system(); }

  static std::size_t cached_blocks(CachedHeap& heap) {
    return count_in(blocks_of(heap), BlockState::cached);
  }
};

TEST(CachedBatch, IsAboutAPage) {
  EXPECT_EQ(batch_blocks(32), max_batch_blocks);
  EXPECT_EQ(batch_blocks(128), 32U);
  EXPECT_EQ(batch_blocks(144), 28U);
  EXPECT_EQ(batch_blocks(1024), 4U);
}

TEST_F(CachedTest, ADryCacheGetsABatch) {
  const Buffer buffer{65536};
  Scoped<CachedHeap> heap{buffer.config()};
  auto* const first = static_cast<std::byte*>(heap->allocate(500, 16));
  const std::size_t block_bytes = block_bytes_for(500);
  const std::size_t batch = batch_blocks(block_bytes);
  EXPECT_EQ(cached_blocks(*heap), batch - 1);
  EXPECT_EQ(heap->measures().cached_bytes, (batch - 1) * block_bytes);
  // They are used in the order in which they were taken, the last freed first.
  auto* const second = static_cast<std::byte*>(heap->allocate(500, 16));
  EXPECT_EQ(second, first + block_bytes);
  heap->release(first);
  EXPECT_EQ(heap->allocate(500, 16), first);
  EXPECT_EQ(cached_blocks(*heap), batch - 2);
}

TEST_F(CachedTest, ASizeOutOfBalanceKeepsABatch) {
  const Buffer buffer{std::size_t{1} << 20};
  Scoped<CachedHeap> heap{buffer.config()};
  const std::size_t batch = batch_blocks(block_bytes_for(500));
  std::vector<void*> blocks;
  for (std::size_t i = 0; i < 5 * batch; ++i) blocks.push_back(heap->allocate(500, 16));
  ASSERT_EQ(cached_blocks(*heap), 0U);
  for (std::size_t i = 0; i < 2 * batch; ++i) heap->release(blocks[i]);
  EXPECT_EQ(cached_blocks(*heap), 2 * batch);  // in balance still
  heap->release(blocks[2 * batch]);
  EXPECT_EQ(cached_blocks(*heap), batch);
  // What is left are the newest; the others are free.
  EXPECT_EQ(heap->allocate(500, 16), blocks[2 * batch]);
  EXPECT_EQ(heap->allocate(500, 16), blocks[2 * batch - 1]);
}

TEST_F(CachedTest, ACacheOutOfBalanceIsHalved) {
  const Buffer buffer{std::size_t{4} << 20};
  Scoped<CachedHeap> heap{buffer.config()};
  heap->allocate(large, 16);  // from here on, the segment grows by whole blocks
  // Sizes enough that no single one is out of balance before all together are.
  std::vector<void*> blocks;
  for (std::size_t bytes = 32; bytes <= max_cached_block_bytes; bytes += granule_bytes) {
    for (unsigned i = 0; i < 2 * batch_blocks(bytes); ++i)
      blocks.push_back(heap->allocate(bytes - tag_bytes, 16));
  }
  std::size_t most = 0;
  bool halved = false;
  for (void* block : blocks) {
    const std::size_t before = heap->measures().cached_bytes;
    heap->release(block);
    const std::size_t after = heap->measures().cached_bytes;
    most = std::max(most, after);
    if (after < before) {
      EXPECT_GT(before + max_cached_block_bytes, max_cache_bytes);
      EXPECT_LE(after, max_cache_bytes * 6 / 10);
      halved = true;
    }
  }
  EXPECT_TRUE(halved);
  EXPECT_LE(most, max_cache_bytes);
  EXPECT_TRUE(heap->is_valid());
}

TEST_F(CachedTest, LargeAndAlignedRequestsPassTheCacheBy) {
  const Buffer buffer{65536};
  Scoped<CachedHeap> heap{buffer.config()};
  void* const big = heap->allocate(max_cached_block_bytes - tag_bytes + 1, 16);
  void* const aligned = heap->allocate(100, 64);
  EXPECT_EQ(cached_blocks(*heap), 0U);
  heap->release(big);
  EXPECT_EQ(cached_blocks(*heap), 0U);
  heap->release(aligned);  // but a small block is cached, however it was asked for
  EXPECT_EQ(cached_blocks(*heap), 1U);
}

TEST_F(CachedTest, AThreadsEndEmptiesItsCache) {
  const Buffer buffer{65536};
  Scoped<CachedHeap> heap{buffer.config()};
  std::thread{[&] { heap->release(heap->allocate(500, 16)); }}.join();
  EXPECT_EQ(heap->measures().cached_bytes, 0U);
  const std::vector<BlockView> blocks = blocks_of(*heap);
  EXPECT_EQ(blocks.size(), 1U) << "all merged again";
  EXPECT_TRUE(heap->is_valid());
}

TEST_F(CachedTest, TrimEmptiesTheCallersCacheOnly) {
  const Buffer buffer{65536};
  Scoped<CachedHeap> heap{buffer.config()};
  Worker other;
  other.run([&] { heap->release(heap->allocate(500, 16)); });
  heap->release(heap->allocate(300, 16));
  const std::size_t batch = batch_blocks(block_bytes_for(500));
  EXPECT_EQ(cached_blocks(*heap), batch + batch_blocks(block_bytes_for(300)));
  heap->trim(0);
  EXPECT_EQ(cached_blocks(*heap), batch);
  other.run([&] { heap->trim(0); });
  EXPECT_EQ(cached_blocks(*heap), 0U);
}

// Memory that lies in the caller's own cache is no reason to fail.
TEST_F(CachedTest, TheOwnCacheIsEmptiedBeforeARequestFails) {
  const Buffer buffer{8192};
  Scoped<CachedHeap> heap{buffer.config()};
  std::vector<void*> blocks;
  while (void* block = heap->allocate(100, 16)) blocks.push_back(block);
  for (void* block : blocks) heap->release(block);
  ASSERT_GT(cached_blocks(*heap), 0U);
  EXPECT_NE(heap->allocate(7000, 16), nullptr);
  EXPECT_EQ(cached_blocks(*heap), 0U);
}

TEST_F(CachedTest, AnEndingThreadNeedsNoCache) {
  const Buffer buffer{65536};
  Scoped<CachedHeap> heap{buffer.config()};
  fake_os::refuse_if(
      [](const fake_os::Request& request) { return request.call == fake_os::Call::map; });
  Worker worker;  // has no table of states, and gets none
  worker.run([&] {
    void* const block = heap->allocate(100, 16);
    ASSERT_NE(block, nullptr);
    heap->release(block);
  });
  EXPECT_EQ(cached_blocks(*heap), 0U);
  fake_os::refuse_nothing();
}

// The walk marks cached blocks and takes the marks off again.
TEST_F(CachedTest, AWalkLeavesNoTrace) {
  const Buffer buffer{65536};
  Scoped<CachedHeap> heap{buffer.config()};
  heap->release(heap->allocate(100, 16));
  const std::size_t cached = cached_blocks(*heap);
  EXPECT_GT(cached, 0U);
  EXPECT_EQ(cached_blocks(*heap), cached);
  EXPECT_FALSE(heap->walk([](const BlockView&, void*) { return false; }, nullptr));
  EXPECT_FALSE(Block::of_payload(heap->allocate(100, 16))->tag().cached());
  EXPECT_TRUE(heap->is_valid());
}

}  // namespace
}  // namespace ts::testing
