// Strategy `arenas`: when an arena is created, which threads use it, and where freed blocks go. The
// tests stop threads inside a system call (fake_os.h), where they hold their arena, so nothing here
// depends on timing.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "unit/clean_system.h"
#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

using ArenasHeap = Arenas<BestFit>;

// Stops the first thread that asks the system for `bytes` of memory inside that call until it is
// released.
class Stop {
 public:
  explicit Stop(std::size_t bytes) {
    fake_os::refuse_if([this, bytes](const fake_os::Request& request) {
      if (request.call == fake_os::Call::map) ++maps_;
      if (request.call != fake_os::Call::map || request.bytes != bytes) return false;
      std::unique_lock lock{mutex_};
      if (used_) return false;
      used_ = true;
      stopped_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !stopped_; });
      return false;
    });
  }
  void await() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return stopped_; });
  }
  void go_on() {
    const std::lock_guard guard{mutex_};
    stopped_ = false;
    changed_.notify_all();
  }
  // Requests for mappings so far, including one in progress.
  unsigned maps() const { return maps_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool used_ = false;
  bool stopped_ = false;
  std::atomic<unsigned> maps_{0};
};

struct ArenasTest : ::testing::Test {
  void SetUp() override { clean_system(); }

  static constexpr std::size_t chunk_bytes = 65536;

  // Has `threads` threads allocate while the first holds its arena. Returns their blocks in thread
  // order. `expected_arenas` are created meanwhile.
  static std::vector<void*> allocate_at_once(ArenasHeap& heap, unsigned threads,
                                             unsigned expected_arenas) {
    std::vector<void*> blocks(threads);
    Stop stop{chunk_bytes};
    std::deque<std::thread> running;
    running.emplace_back([&] { blocks[0] = heap.allocate(large, 16); });
    stop.await();
    const unsigned maps = stop.maps();
    for (unsigned i = 1; i < threads; ++i)
      running.emplace_back([&, i] { blocks[i] = heap.allocate(large, 16); });
    // Each arena beyond the first needs a mapping; its growth then waits for the stopped thread.
    await([&] { return stop.maps() >= maps + expected_arenas - 1; });
    stop.go_on();
    for (std::thread& thread : running) thread.join();
    fake_os::refuse_nothing();
    return blocks;
  }
};

TEST_F(ArenasTest, ABlockReturnsToItsArenaWhoeverFreesIt) {
  Scoped<ArenasHeap> heap{growing_by(SourceKind::mmap, chunk_bytes)};
  const std::vector<void*> blocks = allocate_at_once(*heap, 2, 2);
  // This thread's arena is the first one; the block is returned to the second.
  heap->release(blocks[1]);
  EXPECT_EQ(owner_of(blocks[1]), 1U);
  EXPECT_NE(heap->allocate(large, 16), blocks[1]);
  for (const BlockView& block : blocks_of(*heap)) {
    EXPECT_TRUE(block.owner == 0 || block.state == BlockState::free);
  }
  // All of its chunk is one free block again.
  EXPECT_TRUE(heap->trim(0));
  for (const BlockView& block : blocks_of(*heap)) EXPECT_EQ(block.owner, 0U);
  EXPECT_TRUE(heap->is_valid());
}

TEST_F(ArenasTest, AThreadStaysWithItsArena) {
  Scoped<ArenasHeap> heap{growing_by(SourceKind::mmap, chunk_bytes)};
  Worker second;
  Stop stop{chunk_bytes};
  void* first_block = nullptr;
  std::thread first{[&] { first_block = heap->allocate(large, 16); }};
  stop.await();
  const unsigned maps = stop.maps();
  std::thread starter{
      [&] { second.run([&] { EXPECT_EQ(owner_of(heap->allocate(large, 16)), 1U); }); }};
  await([&] { return stop.maps() > maps; });
  stop.go_on();
  first.join();
  starter.join();
  fake_os::refuse_nothing();
  // All arenas are idle now; each thread stays with its own.
  second.run([&] { EXPECT_EQ(owner_of(heap->allocate(large, 16)), 1U); });
  EXPECT_EQ(owner_of(heap->allocate(large, 16)), 0U);
  EXPECT_EQ(heap->measures().heaps, 2U);
}

TEST_F(ArenasTest, ThereAreNoMoreThanTheLimit) {
  fake_os::answers.processors = 1;
  Scoped<ArenasHeap> heap{growing_by(SourceKind::mmap, chunk_bytes)};
  const std::vector<void*> blocks =
      allocate_at_once(*heap, 3 * arenas_per_processor, arenas_per_processor);
  EXPECT_EQ(heap->measures().heaps, arenas_per_processor);
  for (void* block : blocks) {
    ASSERT_NE(block, nullptr);
    EXPECT_LT(owner_of(block), arenas_per_processor);
  }
  EXPECT_TRUE(heap->is_valid());
}

// Without memory for another arena, threads wait for the one they have.
TEST_F(ArenasTest, AThreadWaitsWhereThereIsNoMemoryForAnArena) {
  const Buffer buffer{65536};
  Scoped<ArenasHeap> heap{buffer.config()};
  fake_os::refuse(fake_os::Call::map);
  run_threads(4, [&](unsigned) {
    for (unsigned step = 0; step < 5000 / slowness; ++step) {
      void* const block = heap->allocate(100, 16);
      ASSERT_NE(block, nullptr);
      heap->release(block);
    }
  });
  EXPECT_EQ(heap->measures().heaps, 1U);
  fake_os::refuse_nothing();
}

// The system refuses, but another arena has free memory.
TEST_F(ArenasTest, ARequestIsServedElsewhereBeforeItFails) {
  Scoped<ArenasHeap> heap{growing_by(SourceKind::mmap, chunk_bytes)};
  const std::vector<void*> blocks = allocate_at_once(*heap, 2, 2);
  heap->release(blocks[1]);
  void* const keep = heap->allocate(large, 16);  // both chunks are partly used
  fake_os::refuse(fake_os::Call::map);
  std::vector<void*> mine;
  bool from_first = false;
  bool from_second = false;
  while (void* block = heap->allocate(large, 16)) {
    (owner_of(block) == 0 ? from_first : from_second) = true;
    mine.push_back(block);
  }
  EXPECT_TRUE(from_first);
  EXPECT_TRUE(from_second);
  EXPECT_GE(mine.size(), 60U);
  for (void* block : mine) heap->release(block);
  heap->release(keep);
  fake_os::refuse_nothing();
  EXPECT_TRUE(heap->is_valid());
}

TEST_F(ArenasTest, FreeOfABlockOfNoArenaAborts) {
  const Buffer buffer{65536};
  Scoped<ArenasHeap> heap{buffer.config()};
  alignas(16) std::uint64_t forged[4] = {0, Tag{32, 77, Tag::used_flag}.word(), 0, 0};
  EXPECT_EXIT(heap->release(forged + 2), ::testing::KilledBySignal(SIGABRT),
              "^tsmalloc: free of a pointer that no arena handed out: 0x[0-9a-f]+\n$");
}

}  // namespace
}  // namespace ts::testing
