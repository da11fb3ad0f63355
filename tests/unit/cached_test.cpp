// Strategy `cached`: what the oracle of tests/property cannot see of the caches, including their
// halving, which its traces rarely reach.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "unit/clean_system.h"
#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

using CachedHeap = Cached<BestFit>;
struct CachedTest : ::testing::Test {
  void SetUp() override { clean_system(); }

  static std::size_t cached_blocks(CachedHeap& heap) {
    return count_in(blocks_of(heap), BlockState::cached);
  }
};

TEST_F(CachedTest, ACacheOutOfBalanceIsHalved) {
  const Buffer buffer{std::size_t{4} << 20};
  Scoped<CachedHeap> heap{buffer.config()};
  heap->allocate(large, 16);  // from here on, the segment grows by whole blocks
  // Enough sizes that the total is out of balance before any single size is.
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

}  // namespace
}  // namespace ts::testing
