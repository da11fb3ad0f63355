// The public C interface under threads: many heaps in one process, threads and heaps that come and
// go, the fixed share, and the source report functions. stress/fork_heaps.cpp covers forks.
#include <cerrno>
#include <cstdint>
#include <memory>

#include "unit/heap_api.h"
#include "unit/worker.h"

namespace {

using namespace ts::testing::api;
using ts::testing::Worker;

// A thread keeps to its share; blocks of others that it frees belong to it from then on.
TEST(FixedShare, EndsWhileOthersHaveMemory) {
  constexpr std::size_t share = 65'536;
  constexpr std::size_t in_share = share / (1000 + tag_bytes);
  for (const ts_source source : {TS_SOURCE_MMAP, TS_SOURCE_BUFFER}) {
    ts_heap_options options = options_of(TS_STRATEGY_NOLOCK, TS_FIT_BEST, source);
    options.thread_share = share;
    const Heap heap{options};
    std::vector<void*> mine;
    while (void* block = ts_heap_malloc(heap, 1000)) mine.push_back(block);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_GE(mine.size(), in_share);
    EXPECT_LE(mine.size(), source == TS_SOURCE_MMAP ? in_share + 5 : in_share);  // whole pages
    Worker other;
    other.run([&] {
      void* const theirs = ts_heap_malloc(heap, 60'000);
      EXPECT_NE(theirs, nullptr) << "the other thread's share is untouched";
      EXPECT_EQ(ts_heap_malloc(heap, 10'000), nullptr);
      // From the end, since a block that changes owner merges only with the block after it.
      for (std::size_t i = 20; i-- > 0;) ts_heap_free(heap, mine[i]);
      EXPECT_NE(ts_heap_malloc(heap, 10'000), nullptr) << "it has taken over what it freed";
    });
    EXPECT_EQ(ts_heap_malloc(heap, 1000), nullptr);
    ts_heap_free(heap, mine.back());
    EXPECT_EQ(ts_heap_malloc(heap, 1000), mine.back());
    EXPECT_EQ(measures_of(heap).subheaps, 2U);
    EXPECT_EQ(ts_heap_check(heap), 1);
  }
}

// ---- Many heaps, many threads ----

std::vector<ts_heap_options> all_kinds() {
  std::vector<ts_heap_options> kinds;
  for (int strategy = 0; strategy < TS_STRATEGY_COUNT; ++strategy) {
    for (int fit = 0; fit < TS_FIT_COUNT; ++fit) {
      for (int source = 0; source < TS_SOURCE_COUNT; ++source) {
        kinds.push_back(options_of(static_cast<ts_strategy>(strategy), static_cast<ts_fit>(fit),
                                   static_cast<ts_source>(source)));
      }
    }
  }
  return kinds;
}

// Threads outlive heaps, and heaps outlive threads.
TEST(ManyHeaps, ComeAndGoWhileThreadsStay) {
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(std::make_unique<Worker>());
  const std::vector<ts_heap_options> kinds = all_kinds();
  for (unsigned round = 0; round < 200 / slowness; ++round) {
    const Heap heap{kinds[round % kinds.size()]};
    ASSERT_NE(heap, nullptr);
    std::vector<void*> blocks;
    for (const auto& worker : workers)
      worker->run([&] {
        for (int i = 0; i < 20; ++i) blocks.push_back(ts_heap_malloc(heap, 200));
      });
    workers[round % 3]->run([&] {
      for (void* block : blocks) ts_heap_free(heap, block);
    });
    ASSERT_EQ(used_bytes(blocks_of(heap)), 0U);
    ASSERT_EQ(ts_heap_check(heap), 1);
    if (round % 10 == 0) workers[round % 3] = std::make_unique<Worker>();
  }
}

// ---- The functions of the reports ----

TEST(Reports, LockHeapMeasuresItsDataSegment) {
  void* const warm = ts_malloc_lock(10'000);
  ts_free_lock(warm);
  const std::size_t segment = ts_data_segment_size();
  const std::size_t free_space = ts_data_segment_free_space_size();
  EXPECT_GE(segment, 10'000U);
  EXPECT_GE(free_space, 10'000U);
  void* const block = ts_malloc_lock(100);
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(ts_data_segment_size(), segment) << "it grew although there was room";
  EXPECT_EQ(ts_data_segment_free_space_size(), free_space - 112);
  ts_free_lock(block);
  EXPECT_EQ(ts_data_segment_free_space_size(), free_space);
  EXPECT_EQ(ts_data_segment_size(), segment) << "it never shrinks";
  ts_free_lock(nullptr);
}

// Growth adds only what is missing.
TEST(Reports, LockHeapGrowsByExactlyWhatIsMissing) {
  void* const hold = ts_malloc_lock(1);
  const std::size_t segment = ts_data_segment_size();
  const std::size_t free_space = ts_data_segment_free_space_size();
  void* const block = ts_malloc_lock(1'000'000);
  ASSERT_NE(block, nullptr);
  const std::size_t grown = ts_data_segment_size() - segment;
  EXPECT_LE(grown, 1'000'016U + chunk_overhead_bytes);
  EXPECT_GE(grown + free_space, 1'000'016U);
  ts_free_lock(block);
  ts_free_lock(hold);
}

TEST(Reports, ZeroBytesAreABlockAndTooManyAreRefused) {
  void* const a = ts_malloc_lock(0);
  void* const b = ts_malloc_lock(0);
  void* const c = ts_malloc_nolock(0);
  EXPECT_TRUE(a != nullptr && a != b && c != nullptr);
  ts_free_lock(a);
  ts_free_lock(b);
  ts_free_nolock(c);
  ts_free_nolock(nullptr);
  for (auto* const allocate : {ts_malloc_lock, ts_malloc_nolock}) {
    errno = 0;
    EXPECT_EQ(allocate(SIZE_MAX), nullptr);
    EXPECT_EQ(errno, ENOMEM);
  }
}

// Report C: a block freed by another thread joins the freeing thread's heap.
TEST(Reports, NoLockBlockJoinsTheFreeingThreadsHeap) {
  void* const block = ts_malloc_nolock(5000);
  void* const border = ts_malloc_nolock(100);  // keeps it from merging with the block after it
  ASSERT_NE(block, nullptr);
  Worker other;
  other.run([&] {
    ts_free_nolock(block);
    EXPECT_EQ(ts_malloc_nolock(5000), block);
    ts_free_nolock(block);
  });
  EXPECT_NE(ts_malloc_nolock(5000), block);
  ts_free_nolock(border);
}

}  // namespace
