// Strategy `nolock`: threads without a heap of their own, and heaps without a thread. The oracle of
// tests/property checks which heap owns a block.
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

using NoLock = PerThread<BestFit>;
struct NoLockTest : ::testing::Test {
  void SetUp() override { clean_system(); }
};

// Two live threads have two heaps, and when both end, both heaps are left to others.
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

// A thread in its last moments, whose heap is already available to others, still allocates and
// frees.
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
      pthread_setspecific(key, value);  // once more, surely after the heap was given up
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

// No memory for a heap of its own: the thread uses the common one until it can have one.
TEST_F(NoLockTest, AThreadWithoutMemoryForAHeapUsesTheCommonOne) {
  const Buffer buffer{65536};
  Scoped<NoLock> heap{buffer.config()};
  Worker worker;
  fake_os::refuse(fake_os::Call::map);
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

}  // namespace
}  // namespace ts::testing
