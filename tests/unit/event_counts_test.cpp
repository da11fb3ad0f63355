// Event counts, compiled into this program's own heaps: each event counts once, where and when it
// happens, in the numbers of the thread that caused it. lab/tests/native tests the reports of the
// finished libraries.
#include "base/event_counts.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "classic/block_map.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

using namespace ts::classic;

static_assert(counting, "this program is about nothing else");

std::uint64_t total(Event event) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < counted_threads(); ++i) sum += counts_of_thread(i)[event];
  return sum;
}

// The counts since this object was made.
class Since {
 public:
  Since() {
    for (std::size_t i = 0; i < event_count; ++i) before_[i] = total(static_cast<Event>(i));
  }
  std::uint64_t operator[](Event event) const {
    return total(event) - before_[static_cast<std::size_t>(event)];
  }

 private:
  std::uint64_t before_[event_count];
};

HeapConfig exact_config() {
  HeapConfig config = by_mmap;
  config.source.growth_bytes = std::size_t{1} << 20;
  config.trim_threshold_bytes = never_trim;
  return config;
}

template <class Heap>
class EventCounts : public ::testing::Test {
 protected:
  EventCounts() : heap{new Heap{exact_config()}} {}
  ~EventCounts() override { heap->destroy(); }

  void* allocate(std::size_t bytes) { return heap->allocate(bytes, min_alignment); }

  struct Walked {
    std::size_t blocks = 0;
    std::size_t bytes = 0;
    std::size_t used_bytes = 0;
  };
  Walked walk() {
    Walked walked;
    walk_map(
        *heap,
        [](const MapExtent& extent, void* to) {
          auto& sums = *static_cast<Walked*>(to);
          ++sums.blocks;
          sums.bytes += extent.bytes;
          sums.used_bytes += extent.used_bytes;
          return true;
        },
        &walked);
    return walked;
  }

  std::unique_ptr<Heap> heap;
};

using Heaps = ::testing::Types<Lock<FirstFit>, Lock<BestFit>, Lock<WorstFit>, ReadWrite<FirstFit>,
                               ReadWrite<BestFit>, PerThread<BestFit>, Arenas<BestFit>,
                               Cached<BestFit>, LockFree<FirstFit>, LockFree<BestFit>>;
TYPED_TEST_SUITE(EventCounts, Heaps);

TYPED_TEST(EventCounts, ExplainEveryBlockOfARandomHistory) {
  const Since since;
  std::mt19937 random{4711};
  std::vector<void*> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const std::size_t alignment = random() % 8 == 0 ? 256 : min_alignment;
      live.push_back(this->heap->allocate(1 + random() % 3000, alignment));
      ASSERT_NE(live.back(), nullptr);
    } else if (random() % 3 == 0) {
      this->heap->resize(live[random() % live.size()], 1 + random() % 3000);
    } else {
      std::swap(live[random() % live.size()], live.back());
      this->heap->release(live.back());
      live.pop_back();
    }
  }
  const auto walked = this->walk();
  EXPECT_EQ(walked.blocks,
            since[Event::growth_calls] + since[Event::splits] - since[Event::merges]);
  const std::size_t segment = this->heap->measures().segment_bytes;
  EXPECT_EQ(segment, since[Event::growth_bytes] - since[Event::trimmed_bytes]);
  EXPECT_LE(walked.bytes, segment);
  EXPECT_LT(walked.used_bytes, walked.bytes);
  EXPECT_GE(since[Event::searches], 1500U);
  EXPECT_GE(since[Event::blocks_searched], since[Event::searches] - since[Event::growth_calls]);
}

TYPED_TEST(EventCounts, OfAFewCallsAreThoseThatTheyMake) {
  void* const first = this->allocate(2000);
  void* const second = this->allocate(2000);
  const Since since;
  void* const third = this->allocate(2000);  // cut from the free block after it
  EXPECT_EQ(since[Event::splits], 1U);
  EXPECT_EQ(since[Event::merges], 0U);
  EXPECT_EQ(since[Event::growth_calls], 0U);
  this->heap->release(second);  // between two blocks in use
  EXPECT_EQ(since[Event::merges], 0U);
  this->heap->release(third);  // and with the following free one
  EXPECT_EQ(since[Event::merges], 2U);
  EXPECT_TRUE(this->heap->resize(first, 3000));  // into part of what follows
  EXPECT_EQ(since[Event::merges], 3U);
  EXPECT_EQ(since[Event::splits], 2U);
  this->heap->release(first);
  EXPECT_EQ(since[Event::merges], 4U);
  EXPECT_EQ(since[Event::searches], since[Event::retries] + 1);
}

TYPED_TEST(EventCounts, OfThreadsStayApartAndOutliveThem) {
  constexpr int threads = 3;
  constexpr int rounds = 200;
  const std::size_t threads_before = counted_threads();
  const Since since;
  run_threads(threads, [&](unsigned) {
    for (int round = 0; round < rounds; ++round) {
      void* const block = this->allocate(2000);
      ASSERT_NE(block, nullptr);
      this->heap->release(block);
    }
  });
  ASSERT_EQ(counted_threads(), threads_before + threads);
  std::uint64_t sum = 0;
  for (std::size_t i = threads_before; i < counted_threads(); ++i) {
    const std::uint64_t searches = counts_of_thread(i)[Event::searches];
    EXPECT_GE(searches, std::uint64_t{rounds});
    sum += searches;
  }
  EXPECT_EQ(sum, since[Event::searches]);
  EXPECT_EQ(this->walk().blocks,
            since[Event::growth_calls] + since[Event::splits] - since[Event::merges]);
}

// ---- strategies ----

TEST(EventCountsOfPerThread, KnowWhoFreesWhatAnotherAllocated) {
  auto heap = std::make_unique<PerThread<FirstFit>>(exact_config());
  const Since since;
  constexpr int blocks = 50;
  void* theirs[blocks];
  std::atomic<int> step{0};
  std::thread other{[&] {
    for (void*& block : theirs) block = heap->allocate(100, min_alignment);
    step = 1;
    while (step != 2) std::this_thread::yield();  // may not be adopted
  }};
  while (step != 1) std::this_thread::yield();
  heap->release(heap->allocate(100, min_alignment));
  EXPECT_EQ(since[Event::foreign_frees], 0U);
  for (void* block : theirs) heap->release(block);
  EXPECT_EQ(since[Event::foreign_frees], std::uint64_t{blocks});
  EXPECT_EQ(since[Event::heaps_created], 2U);
  step = 2;
  other.join();
  std::thread{[&] { heap->release(heap->allocate(100, min_alignment)); }}.join();
  EXPECT_EQ(since[Event::adopted_heaps], 1U);
  EXPECT_EQ(since[Event::heaps_created], 2U);
  heap->destroy();
}

TEST(EventCountsOfCached, TellHitsFromRefills) {
  auto heap = std::make_unique<Cached<BestFit>>(exact_config());
  const Since since;
  void* const first = heap->allocate(100, min_alignment);
  EXPECT_EQ(since[Event::cache_refills], 1U);
  EXPECT_EQ(since[Event::cache_hits], 0U);
  EXPECT_EQ(since[Event::cache_refilled_blocks], std::uint64_t{batch_blocks(block_bytes_for(100))});
  heap->release(first);
  EXPECT_EQ(heap->allocate(100, min_alignment), first);
  EXPECT_EQ(since[Event::cache_hits], 1U);
  EXPECT_EQ(since[Event::cache_returns], 0U);
  heap->release(first);
  heap->trim(0);  // empties the cache
  EXPECT_EQ(since[Event::cache_returns], 1U);
  EXPECT_EQ(since[Event::cache_returned_blocks], since[Event::cache_refilled_blocks]);
  heap->destroy();
}

TEST(EventCountsOfTrimming, AreWhatTheSegmentLost) {
  HeapConfig config = exact_config();
  config.trim_threshold_bytes = std::size_t{2} << 20;
  auto heap = std::make_unique<Lock<BestFit>>(config);
  const Since since;
  heap->release(heap->allocate(std::size_t{8} << 20, min_alignment));
  EXPECT_EQ(since[Event::trim_calls], 1U);
  EXPECT_EQ(since[Event::growth_bytes] - since[Event::trimmed_bytes],
            heap->measures().segment_bytes);
  EXPECT_EQ(since[Event::purge_calls], 0U);
  void* const block = heap->allocate(std::size_t{512} << 10, min_alignment);
  void* const behind = heap->allocate(100, min_alignment);
  heap->release(block);
  heap->trim(std::size_t{1} << 20);
  EXPECT_GE(since[Event::purge_calls], 1U);
  EXPECT_GE(since[Event::purged_bytes], std::size_t{500} << 10);
  heap->release(behind);
  heap->destroy();
}

// ---- locks ----

// A thread that asks for a lock held by another.
template <class Ask>
void wait_once(Ask ask, void (*let_go)(void*), void* lock, const Since& since) {
  std::thread waiter{ask};
  while (since[Event::lock_parks] == 0) std::this_thread::yield();
  let_go(lock);
  waiter.join();
}

TEST(EventCountsOfLocks, CountEveryAcquisitionAndTimeTheWaits) {
  Mutex mutex;
  const Since since;
  mutex.lock();
  mutex.unlock();
  EXPECT_EQ(since[Event::lock_acquisitions], 1U);
  EXPECT_EQ(since[Event::lock_waits], 0U);
  ASSERT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  EXPECT_EQ(since[Event::lock_acquisitions], 2U);
  wait_once([&] { mutex.lock(); }, [](void* lock) { static_cast<Mutex*>(lock)->unlock(); }, &mutex,
            since);
  mutex.unlock();
  EXPECT_EQ(since[Event::lock_acquisitions], 3U);
  EXPECT_EQ(since[Event::lock_waits], 1U);
  EXPECT_GE(since[Event::lock_parks], 1U);
  EXPECT_GT(since[Event::lock_wait_ns], 0U);
}

TEST(EventCountsOfLocks, CountBothSidesOfASharedOne) {
  SharedMutex mutex;
  const Since since;
  mutex.lock_shared();
  EXPECT_EQ(since[Event::lock_acquisitions], 1U);
  wait_once([&] { mutex.lock(); },
            [](void* lock) { static_cast<SharedMutex*>(lock)->unlock_shared(); }, &mutex, since);
  EXPECT_EQ(since[Event::lock_acquisitions], 2U);
  EXPECT_EQ(since[Event::lock_waits], 1U);
  const Since later;
  wait_once([&] { mutex.lock_shared(); },
            [](void* lock) { static_cast<SharedMutex*>(lock)->unlock(); }, &mutex, later);
  mutex.unlock_shared();
  EXPECT_EQ(later[Event::lock_acquisitions], 1U);
  EXPECT_EQ(later[Event::lock_waits], 1U);
}

// ---- the numbers themselves ----

TEST(EventCountsThemselves, LeaveOutWhatIsDoneForNobody) {
  count_event(Event::frees, 2);
  const Since since;
  {
    const UncountedScope scope;
    count_event(Event::frees, 5);
  }
  EXPECT_EQ(since[Event::frees], 0U);
  count_event(Event::frees, 3);
  EXPECT_EQ(since[Event::frees], 3U);
}

TEST(EventCountsThemselves, BeginAnewInTheChildOfAFork) {
  count_event(Event::frees, 2);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    reset_event_counts();
    bool right = counted_threads() == 0;
    count_event(Event::frees, 7);
    right = right && counted_threads() == 1 && total(Event::frees) == 7;
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace ts::testing
