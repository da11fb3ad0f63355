// Heaps and threads: attachment, thread exit, abandoned heaps, the common heap, and forks.
#include <cerrno>
#include <thread>

#include "core/common_heap.h"
#include "core/fork.h"
#include "core/heap_lifecycle.h"
#include "core/remote_frees.h"
#include "core/slabs.h"
#include "features/guard/sampled_guard.h"
#include "features/profile/sampling_switch.h"
#include "unit/engine/fresh_engine.h"

namespace ts::testing {
namespace {

std::uint32_t heap_count() { return engine::page_map.heap_count.load(); }

// This many pages of slabs, full of blocks.
std::vector<void*> fill_pages(ThreadHeap& heap, std::size_t pages) {
  std::vector<void*> blocks;
  while (engine::pages_of_slabs(heap) < pages) blocks.push_back(allocate(heap, 4000));
  return blocks;
}

// ---- the queue ----

TS_ENGINE_TEST(Abandoned, TheLastOneIsAdoptedFirst) {
  ThreadHeap& a = make_heap();
  ThreadHeap& b = make_heap();
  EXPECT_EQ(engine::adopt_abandoned(), nullptr);
  abandon(a, true);
  expect_sound();
  abandon(b, true);
  expect_sound();
  EXPECT_EQ(engine::adopt_abandoned(), &b);
  EXPECT_FALSE(b.is_abandoned);
  EXPECT_FALSE(b.keeps_bins);
  expect_sound();
  EXPECT_EQ(engine::adopt_abandoned(), &a);
  EXPECT_EQ(engine::adopt_abandoned(), nullptr);
}

TS_ENGINE_TEST(Abandoned, ACollectionGoesThroughThemInTurn) {
  ThreadHeap* heaps[3];
  for (ThreadHeap*& heap : heaps) {
    heap = &make_heap();
    allocate(*heap, 100);
  }
  for (ThreadHeap* const heap : heaps) abandon(*heap, true);  // 2, 1, 0
  const auto kept = [&] {
    return std::vector<bool>{heaps[0]->keeps_bins, heaps[1]->keeps_bins, heaps[2]->keeps_bins};
  };
  EXPECT_TRUE(engine::collect_abandoned(1));
  EXPECT_EQ(kept(), (std::vector<bool>{true, true, false}));
  expect_sound();
  EXPECT_TRUE(engine::collect_abandoned(1));  // 1, and not 2 again
  EXPECT_EQ(kept(), (std::vector<bool>{true, false, false}));
  expect_sound();
  EXPECT_TRUE(engine::collect_abandoned(SIZE_MAX));
  EXPECT_EQ(kept(), (std::vector<bool>{false, false, false}));
  expect_sound();
  EXPECT_TRUE(engine::collect_abandoned(0));
  // Each heap comes up once, however many are asked for, and the queue is unchanged.
  ThreadHeap* const first = engine::adopt_abandoned();
  ThreadHeap* const second = engine::adopt_abandoned();
  ThreadHeap* const third = engine::adopt_abandoned();
  EXPECT_TRUE(first != second && second != third && third != nullptr);
  EXPECT_FALSE(engine::collect_abandoned(SIZE_MAX)) << "there is none";
}

TS_ENGINE_TEST(Abandoned, ACollectionRetiresEmptySlabs) {
  ThreadHeap& heap = make_heap();
  void* const p = allocate(heap, 100);
  release(heap, p);
  abandon(heap, true);
  EXPECT_TRUE(engine::collect_abandoned(1));
  EXPECT_EQ(heap.slabs[class_for(100)], 0U) << "blocks in bins keep no slab";
  expect_sound();
  // Also what others free later.
  EXPECT_EQ(engine::adopt_abandoned(), &heap);
  void* const q = allocate(heap, 100);
  flush_heap(heap);
  abandon(heap, false);
  {
    const As as{engine::ended_heap};
    release(q);
  }
  expect_sound();
  EXPECT_TRUE(engine::collect_abandoned(SIZE_MAX));
  EXPECT_EQ(heap.slabs[class_for(100)], 0U);
}

TS_ENGINE_TEST(Abandoned, HeapsWithoutSlabsAreGivenBackAndServeAnew) {
  constexpr unsigned count = 12;
  ThreadHeap* heaps[count];
  for (ThreadHeap*& heap : heaps) {
    heap = &make_heap();
    heap->random = 1;
    release(*heap, allocate(*heap, 100));
  }
  void* const kept = allocate(*heaps[6], 100);
  for (ThreadHeap* const heap : heaps) abandon(*heap, true);
  const std::uint32_t made = heap_count();

  EXPECT_TRUE(engine::collect_abandoned(1)) << "a few at a time: all of them stay";
  EXPECT_TRUE(engine::is_abandoned(*heaps[count - 1]));
  EXPECT_TRUE(engine::collect_abandoned(SIZE_MAX));
  expect_sound();
  unsigned discarded = 0;
  for (const ThreadHeap* const heap : heaps) {
    const bool is_kept = heap == heaps[6];
    EXPECT_EQ(engine::entry_of_heap(*heap) != 0, is_kept);
    EXPECT_EQ(engine::is_abandoned(*heap), is_kept);
    discarded += heap->random == 0 ? 1 : 0;
  }
  if (sizeof(ThreadHeap) % os::page_bytes() == 0) {
    EXPECT_EQ(discarded, count - 1);
  }
  EXPECT_EQ(heaps[6]->random, 1U);

  // The lowest numbers first, then a new one. All of them can allocate, and the kept heap is the
  // one to adopt.
  std::vector<void*> blocks;
  for (unsigned i = 0; i < count; ++i) {
    if (i == 6) continue;
    ThreadHeap& again = make_heap();
    EXPECT_EQ(&again, heaps[i]);
    for (unsigned c = 1; c < engine::class_count; ++c)
      blocks.push_back(allocate(again, size_classes[c].block_bytes));
    expect_sound();
    for (; !blocks.empty(); blocks.pop_back()) release(again, blocks.back());
    expect_sound();
  }
  EXPECT_EQ(heap_count(), made);
  make_heap();
  EXPECT_EQ(heap_count(), made + 1);
  EXPECT_EQ(engine::adopt_abandoned(), heaps[6]);
  release(*heaps[6], kept);
}

TS_ENGINE_TEST(Abandoned, AHeapThatWasGivenBackSamplesIfOthersDo) {
  constexpr unsigned count = 3;
  ThreadHeap* heaps[count];
  for (ThreadHeap*& heap : heaps) heap = &make_heap();
  ASSERT_TRUE(engine::set_sampling_interval(1));
  for (ThreadHeap* const heap : heaps) {
    release(*heap, allocate(*heap, 100));
    abandon(*heap, true);
  }
  EXPECT_TRUE(engine::collect_abandoned(SIZE_MAX));
  expect_sound();
  // A thread that switches sampling may still visit the heap.
  for (ThreadHeap* const heap : heaps) heap->self.fetch_or(engine::sampling_bit);
  for (ThreadHeap* const heap : heaps) {
    EXPECT_EQ(&make_heap(), heap);
    EXPECT_TRUE(engine::is_sampling(*heap));
    for (unsigned c = 1; c < engine::class_count; ++c) {
      EXPECT_EQ(heap->sampling_bins[c].reciprocal, size_classes[c].reciprocal);
      release(*heap, allocate(*heap, size_classes[c].block_bytes));
    }
    expect_sound();
  }
  engine::set_sampling_interval(0);
}

TS_ENGINE_TEST(Abandoned, OneThreadCollectsAndOthersGoOn) {
  ThreadHeap& heap = make_heap();
  allocate(heap, 100);
  abandon(heap, true);
  {
    const Guard guard{engine::collection_lock};  // on behalf of the collecting thread
    EXPECT_FALSE(engine::collect_abandoned(1));
    EXPECT_TRUE(heap.keeps_bins);
    EXPECT_EQ(engine::adopt_abandoned(), &heap);
    abandon(heap, true);
  }
  EXPECT_TRUE(engine::collect_abandoned(1));
  EXPECT_FALSE(heap.keeps_bins);
}

TS_ENGINE_TEST(Abandoned, BinsAreKeptUpTo16MebibytesOfSlabs) {
  constexpr std::uint32_t limit = (std::uint32_t{16} << 20) / page_bytes;
  EXPECT_TRUE(engine::may_keep_bins(limit));
  EXPECT_FALSE(engine::may_keep_bins(limit + 1));
  ThreadHeap& heap = make_heap();
  fill_pages(heap, 600);
  const std::uint32_t pages = engine::pages_of_slabs(heap);
  abandon(heap, true);
  EXPECT_EQ(heap.kept_pages, pages);
  EXPECT_TRUE(engine::may_keep_bins(limit - pages));
  EXPECT_FALSE(engine::may_keep_bins(limit - pages + 1));
  expect_sound();
  // Flushed or adopted blocks no longer count.
  EXPECT_TRUE(engine::collect_abandoned(1));
  EXPECT_TRUE(engine::may_keep_bins(limit));
  EXPECT_EQ(engine::adopt_abandoned(), &heap);
  abandon(heap, true);
  EXPECT_FALSE(engine::may_keep_bins(limit));
  EXPECT_EQ(engine::adopt_abandoned(), &heap);
  EXPECT_TRUE(engine::may_keep_bins(limit));
}

TS_ENGINE_TEST(Abandoned, OfAForkAreRecountedWhenTheyAreAdoptedOrFlushed) {
  for (const bool adopts : {true, false}) {
    ThreadHeap& heap = make_heap();
    allocate(heap, 100);
    engine::CacheBin& bin = heap.bins[class_for(100)];
    const std::int32_t before = bin.capacity_left;
    bin.capacity_left += 1;  // cut off between two stores
    heap.from_fork = heap.recounts = true;
    abandon(heap, true);
    expect_sound("with a count that is off by one, which a fork explains");
    if (adopts) {
      EXPECT_EQ(engine::adopt_abandoned(), &heap);
      EXPECT_EQ(bin.capacity_left, before);
    } else {
      EXPECT_TRUE(engine::collect_abandoned(SIZE_MAX));
    }
    EXPECT_FALSE(heap.recounts);
    expect_sound();
  }
}

// ---- threads ----

TS_ENGINE_TEST(Attach, AThreadAbandonsItsHeapAndTheNextOneAdoptsIt) {
  engine::Engine engine;
  void* p = nullptr;
  std::thread{[&] {
    p = engine.allocate(100, 16);
    EXPECT_TRUE(engine::has_heap());
    release(engine.allocate(100, 16));
  }}.join();
  EXPECT_EQ(heap_count(), 1U);
  expect_sound();
  std::thread{[&] {
    ThreadHeap* const heap = engine::attach_heap();
    ASSERT_NE(heap, nullptr);
    EXPECT_NE(heap->bins[class_for(100)].head, nullptr) << "it kept its bins";
    release(p);
    EXPECT_EQ(engine.allocate(100, 16), p);
  }}.join();
  EXPECT_EQ(heap_count(), 1U);
}

TS_ENGINE_TEST(Attach, AThreadWithManySlabsFlushesAtItsEnd) {
  std::thread{[] {
    engine::Engine engine;
    std::vector<void*> blocks;
    for (int i = 0; i < 6000; ++i) blocks.push_back(engine.allocate(4000, 16));
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (i % 2 != 0) release(blocks[i]);
    }
  }}.join();
  ThreadHeap* const heap = engine::adopt_abandoned();
  ASSERT_NE(heap, nullptr);
  EXPECT_EQ(engine::first_block(heap->bins[class_for(4000)]), nullptr);
}

TS_ENGINE_TEST(Attach, WithoutWordOfTheThreadsEndItGetsNoHeap) {
  fake_os::refuse(fake_os::Call::call_at_thread_exit);
  engine::Engine engine;
  EXPECT_EQ(engine::attach_heap(), nullptr);
  EXPECT_FALSE(engine::has_heap());
  expect_sound("with a heap that was abandoned at once");
  void* const p = engine.allocate(100, 16);
  ASSERT_NE(p, nullptr) << "the common heap serves";
  EXPECT_EQ(engine::this_thread.heap, engine::ended_heap);
  EXPECT_NE(engine.allocate(100, 16), p);
  release(p);
  expect_sound();
  EXPECT_TRUE(engine::find_abandoned_fault().equation == nullptr);
}

TS_ENGINE_TEST(Attach, WithoutMemoryThereIsNoHeapAndAllIsWellLater) {
  fake_os::refuse_memory();
  engine::Engine engine;
  EXPECT_EQ(engine::attach_heap(), nullptr);
  errno = 0;
  EXPECT_EQ(engine.allocate(100, 16), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(engine.allocate(100'000, 16), nullptr);
  EXPECT_EQ(heap_count(), 0U);
  fake_os::refuse_nothing();
  EXPECT_NE(engine.allocate(100, 16), nullptr);
  EXPECT_TRUE(engine::has_heap());
}

TS_ENGINE_TEST(Attach, AFreeIsAThreadsFirstCall) {
  constexpr std::uint32_t early_frees = 16;  // without a heap
  ThreadHeap& owner = make_heap();
  void* const early = allocate(owner, 48);
  void* const p = allocate(owner, 48);
  void* const q = allocate(owner, 48);
  void* const r = allocate(owner, 48);
  std::thread{[&] {
    errno = 7;
    release(early);
    EXPECT_FALSE(engine::has_heap());
    engine::this_thread.early_frees = early_frees;
    release(p);
    EXPECT_EQ(errno, 7);
    EXPECT_TRUE(engine::has_heap());
    EXPECT_NE(engine::this_thread.heap, &owner);
  }}.join();
  EXPECT_EQ(pending_of(span_of(p)), 2U) << "its end sent the batch";
  expect_sound();
  // The block may belong to the adopted heap.
  EXPECT_NE(engine::adopt_abandoned(), nullptr);
  abandon(owner, true);
  std::thread{[&] {
    engine::this_thread.early_frees = early_frees;
    release(q);
    EXPECT_EQ(engine::this_thread.heap, &owner);
    EXPECT_EQ(owner.bins[class_for(48)].head, q);
  }}.join();
  expect_sound();
  // Without a heap, the free takes effect at once.
  fake_os::refuse(fake_os::Call::call_at_thread_exit);
  const std::uint32_t pending = pending_of(span_of(p));
  std::thread{[&] { release(r); }}.join();
  EXPECT_EQ(pending_of(span_of(p)), pending + 1);
}

// ---- the common heap ----

TS_ENGINE_TEST(CommonHeap, ServesThreadsThatAreEnding) {
  const As as{engine::ended_heap};
  engine::Engine engine;
  engine::flush_common_heap();  // there is none yet
  std::vector<void*> blocks;
  for (int i = 0; i < 200; ++i) blocks.push_back(engine.allocate(100, 16));
  EXPECT_EQ(heap_count(), 1U);
  ThreadHeap* const common = engine::heap_of(engine::span_entry(span_of(blocks[0])));
  {
    const Guard guard{engine::common_lock};
    EXPECT_TRUE(engine::is_common(*common));
  }
  expect_sound();
  for (void* const p : blocks) release(p);
  expect_sound();
  engine::flush_common_heap();
  expect_sound();
  EXPECT_EQ(common->slabs[class_for(100)], 0U);
  fake_os::refuse_memory();
  const auto fail = [&] {
    std::size_t got = 0;
    while (engine.allocate(30'000, 16) != nullptr) ++got;
    return got;
  };
  EXPECT_GT(fail(), 0U) << "what is committed serves";
  EXPECT_EQ(fail(), 0U);
}

// ---- forks ----

TS_ENGINE_TEST(Fork, AbandonsHeapsOfThreadsThatTheChildLacks) {
  ThreadHeap& own = make_heap();
  ThreadHeap& idle = make_heap();
  ThreadHeap& busy = make_heap();
  ThreadHeap& held = make_heap();
  ThreadHeap& abandoned = make_heap();
  abandon(abandoned, true);
  void* common_block = nullptr;
  {
    const As as{engine::ended_heap};
    common_block = engine::Engine{}.allocate(100, 16);
  }
  const As as{own};
  busy.busy.store(true);
  const HeapHold hold{held};
  engine::fork_prepare();
  for (Mutex* const lock : {&engine::common_lock, &engine::abandoned_lock, &engine::reclaim_lock,
                            &engine::page_heap.lock(), &engine::sampled_guard_lock})
    EXPECT_FALSE(lock->try_lock());
  engine::fork_parent();
  EXPECT_FALSE(idle.is_abandoned);
  expect_sound("in the parent");
  engine::fork_prepare();
  engine::fork_child();
  EXPECT_TRUE(idle.is_abandoned);
  EXPECT_TRUE(idle.recounts);
  EXPECT_TRUE(abandoned.is_abandoned);
  EXPECT_FALSE(abandoned.recounts);
  EXPECT_FALSE(own.is_abandoned);
  EXPECT_FALSE(busy.is_abandoned);
  EXPECT_FALSE(held.is_abandoned);
  EXPECT_FALSE(engine::heap_of(engine::span_entry(span_of(common_block)))->is_abandoned);
  expect_sound("in the child");
  release(common_block);
  EXPECT_EQ(engine::Engine{}.trim(0), pages_per_os_page() == 1) << "one page is dirty";
}

TS_ENGINE_TEST(Fork, InAProcessOfOneThreadAbandonsNone) {
  ThreadHeap& own = make_heap();
  ThreadHeap& other = make_heap();
  const As as{own};
  fake_os::answers.has_one_thread = true;
  // A signal handler may fork on top of a call that holds a lock.
  engine::page_heap.lock().lock();
  engine::Engine engine;
  engine.fork_prepare();
  engine.fork_child();
  EXPECT_FALSE(other.is_abandoned);
  EXPECT_FALSE(engine::page_heap.lock().try_lock()) << "the call goes on, and unlocks it";
  engine::page_heap.lock().unlock();
  engine.fork_prepare();
  engine.fork_parent();
}

}  // namespace
}  // namespace ts::testing
