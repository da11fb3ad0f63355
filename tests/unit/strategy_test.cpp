// What each strategy does beyond what all heaps do: who owns which block, who waits for whom, what happens
// at a thread's end. Threads do one thing at a time (worker.h) or are stopped inside a call of the system
// (fake_os.h), so that nothing here depends on timing.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "unit/clean_system.h"
#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

constexpr std::size_t large = 2000;  // too large to be cached

struct StrategyTest : ::testing::Test {
  void SetUp() override { clean_system(); }
};

std::uint32_t owner_of(const void* payload) { return Block::of_payload(payload)->tag().owner(); }

// ---- nolock ----

using NoLock = PerThread<BestFit>;
struct NoLockTest : StrategyTest {};

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

// The price that tagged_heap.h names: a block that changed hands does not merge with the free one before
// it, until that one is freed again.
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

struct FixedShareTest : StrategyTest {
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

// Whoever frees a block has it from then on: the share moves.
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

// ---- arenas ----

using ArenasHeap = Arenas<BestFit>;

// Stops the first thread that asks the system for memory of `bytes`, inside that call, until told to go on.
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
  // Requests for mappings so far, granted or about to be.
  unsigned maps() const { return maps_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool used_ = false;
  bool stopped_ = false;
  std::atomic<unsigned> maps_{0};
};

template <class Condition>
void await(const Condition& holds) {
  while (!holds()) std::this_thread::yield();
}

struct ArenasTest : StrategyTest {
  static constexpr std::size_t chunk_bytes = 65536;

  // Has `threads` threads allocate while the first holds its arena; returns what they got, in the
  // order of the threads. `expected_arenas` are made meanwhile.
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
    // Each arena beyond the first is a mapping; then its growth waits behind the stopped thread's.
    await([&] { return stop.maps() >= maps + expected_arenas - 1; });
    stop.go_on();
    for (std::thread& thread : running) thread.join();
    fake_os::refuse_nothing();
    return blocks;
  }
};

TEST_F(ArenasTest, AThreadThatFindsAllArenasBusyMakesOne) {
  Scoped<ArenasHeap> heap{growing_by(SourceKind::mmap, chunk_bytes)};
  const std::vector<void*> blocks = allocate_at_once(*heap, 2, 2);
  EXPECT_EQ(owner_of(blocks[0]), 0U);
  EXPECT_EQ(owner_of(blocks[1]), 1U);
  EXPECT_EQ(heap->measures().heaps, 2U);
  EXPECT_TRUE(heap->is_valid());
}

TEST_F(ArenasTest, ABlockReturnsToItsArenaWhoeverFreesIt) {
  Scoped<ArenasHeap> heap{growing_by(SourceKind::mmap, chunk_bytes)};
  const std::vector<void*> blocks = allocate_at_once(*heap, 2, 2);
  // This thread's arena is the first one; the block goes back to the second.
  heap->release(blocks[1]);
  EXPECT_EQ(owner_of(blocks[1]), 1U);
  EXPECT_NE(heap->allocate(large, 16), blocks[1]);
  for (const BlockView& block : blocks_of(*heap)) {
    EXPECT_TRUE(block.owner == 0 || block.state == BlockState::free);
  }
  // Whole again: all of its chunk is one free block.
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
  std::thread starter{[&] {
    second.run([&] { EXPECT_EQ(owner_of(heap->allocate(large, 16)), 1U); });
  }};
  await([&] { return stop.maps() > maps; });
  stop.go_on();
  first.join();
  starter.join();
  fake_os::refuse_nothing();
  // All arenas are idle now; each thread goes on where it was.
  second.run([&] { EXPECT_EQ(owner_of(heap->allocate(large, 16)), 1U); });
  EXPECT_EQ(owner_of(heap->allocate(large, 16)), 0U);
  EXPECT_EQ(heap->measures().heaps, 2U);
}

TEST_F(ArenasTest, ThereAreNoMoreThanTheLimit) {
  fake_os::set_processor_count(1);
  Scoped<ArenasHeap> heap{growing_by(SourceKind::mmap, chunk_bytes)};
  const std::vector<void*> blocks = allocate_at_once(*heap, 3 * arenas_per_processor, arenas_per_processor);
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
  fake_os::refuse_if([](const fake_os::Request& request) { return request.call == fake_os::Call::map; });
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (unsigned step = 0; step < 5000 / slowness; ++step) {
        void* const block = heap->allocate(100, 16);
        ASSERT_NE(block, nullptr);
        heap->release(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(heap->measures().heaps, 1U);
  fake_os::refuse_nothing();
}

// The system gives no more, but another arena has it lying free.
TEST_F(ArenasTest, ARequestIsServedElsewhereBeforeItFails) {
  Scoped<ArenasHeap> heap{growing_by(SourceKind::mmap, chunk_bytes)};
  const std::vector<void*> blocks = allocate_at_once(*heap, 2, 2);
  heap->release(blocks[1]);
  void* const keep = heap->allocate(large, 16);  // both arenas' chunks are in part in use
  fake_os::refuse_if([](const fake_os::Request& request) { return request.call == fake_os::Call::map; });
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

// ---- cached ----

using CachedHeap = Cached<BestFit>;
struct CachedTest : StrategyTest {
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
  fake_os::refuse_if([](const fake_os::Request& request) { return request.call == fake_os::Call::map; });
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

// ---- rwlock and lockfree under contention ----

// Threads that take and give blocks of all sizes in a heap with little room: searches collide, growth is
// refused, and in the end everything is one free block again.
template <class Heap>
class Contention : public StrategyTest {};
TYPED_TEST_SUITE(Contention, AllHeaps, HeapNames);

TYPED_TEST(Contention, LosesNothing) {
  constexpr unsigned threads = 4;
  const Buffer buffer{std::size_t{256} << 10};
  Scoped<TypeParam> heap{buffer.config()};
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
          ASSERT_TRUE(std::all_of(block, block + bytes, [&](unsigned char c) { return c == i + 1; }));
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
  if (!is_per_thread<TypeParam>) {
    const HeapMeasures measures = heap->measures();
    EXPECT_EQ(blocks.size(), measures.chunks) << "free neighbours were not merged";
  }
}

// Blocks that were freed when there was no memory for nodes wait, and are not forgotten.
TEST_F(StrategyTest, LockFreeKeepsWhatItCanNotFileYet) {
  const Buffer buffer{std::size_t{1} << 20};
  Scoped<LockFree<BestFit>> heap{buffer.config()};
  std::vector<void*> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(heap->allocate(1000, 16));
  fake_os::refuse_if([](const fake_os::Request& request) { return request.call == fake_os::Call::map; });
  // Threads without a stash, and without any way to get nodes: every other block, so that nothing merges.
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
