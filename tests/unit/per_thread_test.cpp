// Strategy `nolock`: the owners of blocks, the heap of an ended thread, and the fixed share.
// Threads do one thing at a time (worker.h), so that nothing here depends on timing.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "unit/clean_system.h"
#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

constexpr std::size_t large = 2000;

std::uint32_t owner_of(const void* payload) { return Block::of_payload(payload)->tag().owner(); }

using NoLock = PerThread<BestFit>;
struct NoLockTest : ::testing::Test {
  void SetUp() override { clean_system(); }
};

TEST_F(NoLockTest, EachThreadHasItsHeapAndADeadOnesIsAdopted) {
  const Buffer buffer{65536};
  Scoped<NoLock> heap{buffer.config()};
  void* const mine = heap->allocate(large, 16);
  void* theirs = nullptr;
  std::thread{[&] {
    theirs = heap->allocate(large, 16);
    heap->release(theirs);
  }}.join();
  EXPECT_EQ(owner_of(mine), 1U);
  EXPECT_EQ(heap->measures().heaps, 2U);
  // The next thread lives in the heap of the dead one, with what is free there.
  std::thread{[&] {
    EXPECT_EQ(heap->allocate(large, 16), theirs);
    EXPECT_EQ(owner_of(theirs), 2U);
  }}.join();
  // And the next again, with what is in use there.
  std::thread{[&] { heap->release(theirs); }}.join();
  EXPECT_EQ(heap->measures().heaps, 2U);
  EXPECT_TRUE(heap->is_valid());
  heap->release(mine);
}

// Two threads alive at the same time have two heaps, and the death of both leaves both to others.
TEST_F(NoLockTest, AllDeadHeapsAreAdopted) {
  const Buffer buffer{65536};
  Scoped<NoLock> heap{buffer.config()};
  for (int generation = 0; generation < 5; ++generation) {
    std::vector<std::unique_ptr<Worker>> workers;
    for (int i = 0; i < 4; ++i) {
      workers.push_back(std::make_unique<Worker>());
      workers.back()->run([&] { heap->release(heap->allocate(100, 16)); });
    }
    EXPECT_EQ(heap->measures().heaps, 4U) << "generation " << generation;
  }
}

TEST_F(NoLockTest, AForeignFreeJoinsTheFreersHeap) {
  const Buffer buffer{65536};
  Scoped<NoLock> heap{buffer.config()};
  Worker other;
  void* const block = heap->allocate(large, 16);
  void* const neighbour = heap->allocate(large, 16);
  heap->allocate(large, 16);
  heap->release(neighbour);
  other.run([&] {
    heap->release(block);
    // Both are free, side by side, and stay two blocks, since they have two owners.
    EXPECT_EQ(owner_of(block), 2U);
    EXPECT_EQ(owner_of(neighbour), 1U);
    EXPECT_EQ(heap->measures().free_blocks, count_in(blocks_of(*heap), BlockState::free));
    EXPECT_NE(heap->allocate(2 * large, 16), block);
    EXPECT_EQ(heap->allocate(large, 16), block);
  });
  EXPECT_EQ(heap->allocate(large, 16), neighbour);
  EXPECT_TRUE(heap->is_valid());
}

// The price that sharing.h names: a block that changed hands does not merge with the free one
// before it, until that one is freed again.
TEST_F(NoLockTest, ABlockThatChangedHandsMergesWhenTheOneBeforeItIsFreedAgain) {
  const Buffer buffer{65536};
  Scoped<NoLock> heap{buffer.config()};
  Worker other;
  void* const a = heap->allocate(large, 16);
  void* const b = heap->allocate(large, 16);
  void* const border = heap->allocate(large, 16);
  other.run([&] { heap->release(b); });
  other.run([&] { EXPECT_EQ(heap->allocate(large, 16), b); });
  heap->release(a);
  heap->release(b);  // mine again; but it does not know that `a` is free
  const auto free_blocks = [&] { return count_in(blocks_of(*heap), BlockState::free); };
  const std::size_t apart = free_blocks();
  EXPECT_EQ(heap->allocate(large, 16), a);
  heap->release(a);
  EXPECT_EQ(free_blocks(), apart - 1);
  EXPECT_EQ(heap->allocate(2 * large + tag_bytes, 16), a);
  EXPECT_TRUE(heap->is_valid());
  heap->release(border);
}

// A thread in its last moments, whose heap is already left to others, still allocates and frees.
TEST_F(NoLockTest, AnEndingThreadUsesTheCommonHeap) {
  static const Buffer buffer{65536};
  static Scoped<NoLock>* heap = nullptr;
  Scoped<NoLock> scoped{buffer.config()};
  heap = &scoped;
  static std::atomic<int> rounds;
  static std::atomic<std::uint32_t> late_owner;
  rounds = 0;
  late_owner = 99;
  static pthread_key_t key;
  const auto at_end = [](void* value) {
    if (++rounds == 1) {
      pthread_setspecific(key, value);  // once more, when the heap's own end is past for sure
      return;
    }
    void* const block = (*heap)->allocate(large, 16);
    late_owner = owner_of(block);
    EXPECT_TRUE((*heap)->resize(block, 100));
    (*heap)->release(block);
    (*heap)->release(value);
  };
  ASSERT_EQ(pthread_key_create(&key, at_end), 0);
  std::thread{[] { pthread_setspecific(key, (*heap)->allocate(large, 16)); }}.join();
  EXPECT_EQ(rounds, 2);
  EXPECT_EQ(late_owner, 0U);
  pthread_key_delete(key);
  EXPECT_TRUE(scoped->is_valid());
  EXPECT_EQ(bytes_in(blocks_of(*scoped), BlockState::used), 0U);
}

// No memory for a heap of its own: the thread uses the common one, and gets its own later.
TEST_F(NoLockTest, AThreadWithoutMemoryForAHeapUsesTheCommonOne) {
  const Buffer buffer{65536};
  Scoped<NoLock> heap{buffer.config()};
  Worker worker;
  fake_os::refuse_if(
      [](const fake_os::Request& request) { return request.call == fake_os::Call::map; });
  void* block = nullptr;
  worker.run([&] { block = heap->allocate(large, 16); });
  ASSERT_NE(block, nullptr);
  EXPECT_EQ(owner_of(block), 0U);
  fake_os::refuse_nothing();
  worker.run([&] {
    void* const own = heap->allocate(large, 16);
    EXPECT_EQ(owner_of(own), 1U);
    heap->release(block);
    heap->release(own);
  });
  EXPECT_TRUE(heap->is_valid());
}

struct FixedShareTest : NoLockTest {
  static HeapConfig sharing(const Buffer& buffer, std::size_t share_bytes) {
    HeapConfig config = buffer.config();
    config.thread_share_bytes = share_bytes;
    return config;
  }
};

TEST_F(FixedShareTest, EndsWhileOthersHaveMemory) {
  const Buffer buffer{65536};
  Scoped<NoLock> heap{sharing(buffer, 16384)};
  Worker other;
  std::vector<void*> mine;
  while (void* block = heap->allocate(1000, 16)) mine.push_back(block);
  EXPECT_EQ(mine.size(), 16384 / block_bytes_for(1000));
  other.run([&] {
    void* const all = heap->allocate(16384 - tag_bytes, 16);
    EXPECT_NE(all, nullptr) << "its share is not there";
    EXPECT_EQ(heap->allocate(1, 16), nullptr);
    heap->release(all);
  });
  EXPECT_EQ(heap->allocate(1000, 16), nullptr) << "it took from another's share";
  heap->release(mine.back());
  EXPECT_EQ(heap->allocate(1000, 16), mine.back());
  EXPECT_TRUE(heap->is_valid());
}

// A freed block joins the freeing thread's heap: the share moves.
TEST_F(FixedShareTest, MovesWithForeignFrees) {
  const Buffer buffer{65536};
  Scoped<NoLock> heap{sharing(buffer, 16384)};
  Worker other;
  void* const block = heap->allocate(10'000, 16);
  other.run([&] {
    EXPECT_NE(heap->allocate(16'000, 16), nullptr);
    EXPECT_EQ(heap->allocate(9000, 16), nullptr);
    heap->release(block);
    EXPECT_EQ(heap->allocate(9000, 16), block);
  });
  EXPECT_EQ(heap->allocate(10'000, 16), nullptr) << "what another freed came back";
  EXPECT_NE(heap->allocate(5000, 16), nullptr);
}

}  // namespace
}  // namespace ts::testing
