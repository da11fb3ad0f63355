// All heaps under contention and with too little memory: whatever the threads did to one another,
// in the end nothing is lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "unit/clean_system.h"
#include "unit/heaps.h"

namespace ts::testing {
namespace {

// Threads that take and give blocks of all sizes in a heap with little room: searches collide,
// growth is refused, and in the end everything is one free block again.
class Contention : public HeapSuite {
 protected:
  void SetUp() override { clean_system(); }
};
INSTANTIATE_TEST_SUITE_P(, Contention, all_heaps(), heap_name);

TEST_P(Contention, LosesNothing) {
  constexpr unsigned threads = 4;
  const Buffer buffer{std::size_t{256} << 10};
  const auto heap = make(buffer.config());
  std::atomic<std::size_t> served{0};
  std::atomic<std::size_t> refused{0};
  std::vector<std::thread> running;
  for (unsigned i = 0; i < threads; ++i) {
    running.emplace_back([&, i] {
      std::mt19937_64 random{i};
      std::vector<std::pair<unsigned char*, std::size_t>> live;
      for (unsigned step = 0; step < 40'000 / slowness; ++step) {
        if (random() % 2 == 0) {
          const std::size_t bytes = random() % 16 == 0 ? random() % 20'000 : random() % 600;
          auto* const block = static_cast<unsigned char*>(heap->allocate(bytes, 16));
          ++(block == nullptr ? refused : served);
          if (block == nullptr) continue;
          std::memset(block, static_cast<int>(i + 1), bytes);
          live.push_back({block, bytes});
        } else if (!live.empty()) {
          std::swap(live[random() % live.size()], live.back());
          const auto [block, bytes] = live.back();
          live.pop_back();
          ASSERT_TRUE(
              std::all_of(block, block + bytes, [&](unsigned char c) { return c == i + 1; }));
          heap->release(block);
        }
      }
      for (const auto& [block, bytes] : live) heap->release(block);
    });
  }
  for (std::thread& thread : running) thread.join();
  EXPECT_GT(served, threads * 1000U);
  EXPECT_TRUE(heap->is_valid());
  const std::vector<BlockView> blocks = blocks_of(*heap);
  EXPECT_EQ(bytes_in(blocks, BlockState::used), 0U);
  if (!is("nolock")) {
    const HeapMeasures measures = heap->measures();
    EXPECT_EQ(blocks.size(), measures.chunks) << "free neighbours were not merged";
  }
}

// Blocks that were freed when there was no memory for nodes wait, and are not forgotten.
TEST(LockFreeTest, KeepsWhatItCanNotFileYet) {
  clean_system();
  const Buffer buffer{std::size_t{1} << 20};
  Scoped<LockFree<BestFit>> heap{buffer.config()};
  std::vector<void*> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(heap->allocate(1000, 16));
  fake_os::refuse_if(
      [](const fake_os::Request& request) { return request.call == fake_os::Call::map; });
  // Threads without a stash, and without any way to get nodes: every other block, so that nothing
  // merges.
  std::thread{[&] {
    for (std::size_t i = 0; i < blocks.size(); i += 2) heap->release(blocks[i]);
  }}.join();
  fake_os::refuse_nothing();
  for (std::size_t i = 1; i < blocks.size(); i += 2) heap->release(blocks[i]);
  EXPECT_TRUE(heap->is_valid());
  const std::vector<BlockView> left = blocks_of(*heap);
  EXPECT_EQ(bytes_in(left, BlockState::used), 0U);
  EXPECT_EQ(left.size(), heap->measures().chunks);
}

}  // namespace
}  // namespace ts::testing
