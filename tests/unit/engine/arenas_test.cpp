// Arenas and scopes where only the engine's internals show the effect: bins and batches, marks,
// handles, frees by other threads, and forks. The oracle of fuzz.arena_operations covers ownership
// of blocks, nesting of scopes, and return values.
#include "features/arenas/arenas.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "core/common_heap.h"
#include "core/fork.h"
#include "core/heap_lifecycle.h"
#include "core/large_blocks.h"
#include "features/arenas/idle_arenas.h"
#include "features/arenas/scopes.h"
#include "features/profile/large_samples.h"
#include "features/profile/sampling_switch.h"
#include "os/options.h"
#include "unit/engine/fresh_engine.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

using engine::ArenaHandle;
using engine::ArenaUsage;

ArenaHandle make_arena() {
  const ArenaHandle arena = engine::create_arena();
  EXPECT_NE(arena, 0U);
  return arena;
}

void enter(ArenaHandle arena) { EXPECT_EQ(engine::enter_scope(arena), 0); }
void leave() { EXPECT_EQ(engine::leave_scope(), 0); }

void* allocate(std::size_t bytes) {
  void* const p = engine::Engine{}.allocate(bytes, 16);
  EXPECT_NE(p, nullptr);
  if (p != nullptr) std::memset(p, 0x5a, bytes);
  return p;
}

// The heap that owns a block; null for a large block outside any arena.
ThreadHeap* owner_of(const void* p) {
  const engine::PageMapEntry entry = engine::entry_of(p);
  if (entry != engine::large_entry) return engine::heap_of(entry);
  const std::uint32_t number = span_of(p).arena.load();
  return number != 0 ? engine::page_map.heaps + number : nullptr;
}

ArenaUsage usage_of(ArenaHandle arena) {
  ArenaUsage usage;
  EXPECT_EQ(engine::measure_arena(arena, usage), 0);
  return usage;
}

constexpr std::size_t some_sizes[] = {1, 24, 100, 128, 1000, 4096, 20'000, 40'000, 300'000};

TS_ENGINE_TEST(Arenas, ASecondThreadsFreesAreOverWhenTheyReturn) {
  const ArenaHandle arena = make_arena();
  std::vector<void*> blocks;
  enter(arena);
  for (int round = 0; round < 200; ++round)
    for (const std::size_t bytes : some_sizes) blocks.push_back(allocate(bytes));
  leave();
  expect_sound();
  std::thread{[&] {
    allocate(128);  // its bin of that class has capacity
    for (void* const p : blocks) release(p);
    ThreadHeap& heap = engine::current_heap();
    for (const engine::RemoteBatch& batch : heap.batches) EXPECT_EQ(batch.count, 0U);
    expect_sound();
    EXPECT_EQ(engine::destroy_arena(arena), 0);
    // New blocks of the thread belong to it.
    for (const std::size_t bytes : some_sizes) {
      ThreadHeap* const expected = bytes <= engine::max_small_bytes ? &heap : nullptr;
      EXPECT_EQ(owner_of(allocate(bytes)), expected);
    }
    expect_sound();
  }}.join();
}

TS_ENGINE_TEST(Arenas, ADestroyedOneLeavesNoMarks) {
  const ArenaHandle arena = make_arena();
  std::vector<void*> blocks;
  enter(arena);
  for (int i = 0; i < 4000; ++i) blocks.push_back(allocate(64));
  for (std::size_t i = 0; i < blocks.size(); i += 3) release(blocks[i]);  // to bin and slabs
  leave();
  release(blocks[1]);  // pending
  EXPECT_EQ(engine::destroy_arena(arena), 0);
  void* const large = allocate(200'000);
  EXPECT_TRUE(std::ranges::any_of(
      blocks, [&](const void* was) { return address_of(was) - address_of(large) < 200'000; }));
  for (std::size_t at = 0; at < 200'000; at += 64)
    ASSERT_FALSE(engine::has_key(static_cast<const std::byte*>(large) + at)) << at;
}

TS_ENGINE_TEST(Arenas, BlocksOfOthersDoNotEnterTheArena) {
  std::vector<void*> own;
  for (int i = 0; i < 300; ++i) own.push_back(allocate(128));
  void* const large = allocate(100'000);
  ThreadHeap& heap = engine::current_heap();
  void* foreign = nullptr;
  std::thread{[&] { foreign = allocate(128); }}.join();
  const ArenaHandle arena = make_arena();
  enter(arena);
  const std::int32_t in_bin =
      heap.capacities[engine::class_for(128)] - heap.bins[engine::class_for(128)].capacity_left;
  release(own[0]);
  EXPECT_EQ(heap.bins[engine::class_for(128)].head, own[0]) << "at once, and not as a remote free";
  EXPECT_EQ(
      heap.capacities[engine::class_for(128)] - heap.bins[engine::class_for(128)].capacity_left,
      in_bin + 1);
  for (std::size_t i = 1; i < own.size(); ++i) release(own[i]);
  release(large);
  release(foreign);
  EXPECT_EQ(engine::this_thread.heap, engine::arena_of(arena));
  for (int i = 0; i < 300; ++i) EXPECT_EQ(owner_of(allocate(128)), engine::arena_of(arena));
  expect_sound();
  leave();
  EXPECT_EQ(engine::destroy_arena(arena), 0);
}

TS_ENGINE_TEST(Arenas, WhatIsNoArenaIsRefused) {
  allocate(100);
  const ArenaHandle arena = make_arena();
  ArenaUsage usage;
  for (const ArenaHandle wrong :
       {ArenaHandle{1}, arena + 1, arena ^ 1, arena + (1 << engine::generation_shift),
        arena & ~((ArenaHandle{1} << engine::generation_shift) - 1), ~ArenaHandle{0},
        (ArenaHandle{1} << engine::generation_shift) | 1}) {
    EXPECT_EQ(engine::enter_scope(wrong), EINVAL) << wrong;
    EXPECT_EQ(engine::destroy_arena(wrong), EINVAL) << wrong;
    EXPECT_EQ(engine::reset_arena(wrong), EINVAL) << wrong;
    EXPECT_EQ(engine::measure_arena(wrong, usage), EINVAL) << wrong;
  }
  EXPECT_EQ(engine::destroy_arena(0), EINVAL);
  EXPECT_EQ(engine::destroy_arena(arena), 0);
  EXPECT_EQ(engine::destroy_arena(arena), EINVAL);
  EXPECT_EQ(engine::enter_scope(arena), EINVAL);
  const ArenaHandle next = make_arena();
  EXPECT_NE(next, arena);
  EXPECT_EQ(engine::arena_of(next), engine::arena_of(arena)) << "the same heap";
  EXPECT_EQ(engine::enter_scope(arena), EINVAL);
  enter(next);
  EXPECT_EQ(engine::enter_scope(arena), EINVAL);
  EXPECT_EQ(engine::reset_arena(arena), EINVAL);
  leave();
}

TS_ENGINE_TEST(Arenas, TrimFlushesWhatNobodyUses) {
  if (pages_per_os_page() != 1) return;
  const ArenaHandle arena = make_arena();
  const ArenaHandle used = make_arena();
  std::vector<void*> blocks;
  for (const ArenaHandle each : {arena, used}) {
    enter(each);
    for (int i = 0; i < 2000; ++i) blocks.push_back(allocate(100));
    leave();
  }
  enter(used);
  for (void* const p : blocks) release(p);
  engine::Engine{}.trim(0);
  EXPECT_EQ(engine::this_thread.heap, engine::arena_of(used));
  EXPECT_EQ(usage_of(arena).slab_bytes, 0U);
  EXPECT_EQ(usage_of(used).slab_bytes, 0U);
  expect_sound();
  leave();
}

TS_ENGINE_TEST(Arenas, TheBackgroundThreadCollectsFromWhatNobodyUses) {
  const ArenaHandle arena = make_arena();
  std::vector<void*> blocks;
  enter(arena);
  for (int i = 0; i < 2000; ++i) blocks.push_back(allocate(100));
  leave();
  const std::size_t before = usage_of(arena).slab_bytes;
  for (void* const p : blocks) release(p);
  engine::collect_idle_arenas();
  EXPECT_LT(engine::arena_of(arena)->sparse_pages * page_bytes, before / 4);
  expect_sound();
  enter(arena);
  allocate(100);
  engine::collect_idle_arenas();
  leave();
}

TS_ENGINE_TEST(Arenas, ADoubleFreeIsReported) {
  const ArenaHandle arena = make_arena();
  enter(arena);
  void* const p = allocate(100);
  void* const q = allocate(100);
  void* const large = allocate(100'000);
  leave();
  release(p);
  release(p);
  expect_misuse(Misuse::double_free, FoundBy::free, p);
  enter(arena);
  release(q);
  release(q);
  expect_misuse(Misuse::double_free, FoundBy::free, q);
  leave();
  release(q);
  expect_misuse(Misuse::double_free, FoundBy::free, q);
  release(static_cast<std::byte*>(p) + 1);
  EXPECT_EQ(fake_os::take_misuses().size(), 1U);
  EXPECT_EQ(engine::destroy_arena(arena), 0);
  release(p);  // an invalid pointer
  release(large);
  EXPECT_EQ(fake_os::take_misuses().size(), 2U);
}

TS_ENGINE_TEST(Arenas, NoBlockOfAScopeIsSampled) {
  current_options.guard_sample = 1;
  const ArenaHandle arena = make_arena();
  enter(arena);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(owner_of(allocate(100)), engine::arena_of(arena));
  leave();
  // But a frame may exist.
  std::thread{[&] {
    for (int i = 0; i < 200; ++i) enter(i % 2 == 0 ? arena : 0);
  }}.join();
  EXPECT_EQ(engine::destroy_arena(arena), 0);
}

TS_ENGINE_TEST(Arenas, WithoutMemoryThereIsNone) {
  allocate(100);
  const ArenaHandle arena = make_arena();
  fake_os::refuse_memory();
  std::size_t arenas = 0;
  while (engine::create_arena() != 0) ++arenas;
  EXPECT_GT(arenas, 0U) << "the table of heaps grows in steps";
  EXPECT_EQ(engine::create_arena(), 0U);
  enter(arena);
  EXPECT_EQ(engine::Engine{}.allocate(std::size_t{1} << 30, 16), nullptr);
  leave();
  EXPECT_EQ(engine::destroy_arena(arena), 0);
  const ArenaHandle reused = make_arena();
  expect_sound();
  std::thread{[&] { EXPECT_EQ(engine::enter_scope(reused), ENOMEM); }}.join();
}

TS_ENGINE_TEST(Arenas, AForkKeepsThoseOfItsThreadAndRecoversOthers) {
  const ArenaHandle own = make_arena();
  const ArenaHandle idle = make_arena();
  const ArenaHandle others = make_arena();
  const ArenaHandle changed = make_arena();
  ThreadHeap& other = make_heap();
  for (const ArenaHandle arena : {own, idle}) {
    enter(arena);
    allocate(100);
    leave();
  }
  {
    const As as{other};
    enter(others);
    void* const p = allocate(100);
    allocate(100'000);
    release(p);
    enter(changed);
    allocate(100);
  }
  engine::this_thread.innermost_scope = nullptr;  // the other thread's
  engine::arena_of(changed)->busy.store(true);
  enter(own);
  engine::Engine engine;
  engine.fork_prepare();
  EXPECT_FALSE(engine::arenas_lock.try_lock());
  engine.fork_parent();
  EXPECT_FALSE(other.is_abandoned);
  engine.fork_prepare();
  engine.fork_child();
  EXPECT_TRUE(other.is_abandoned);
  EXPECT_EQ(engine::this_thread.heap, engine::arena_of(own));
  EXPECT_FALSE(static_cast<ThreadHeap*>(engine::threads_heap())->is_abandoned);
  for (const ArenaHandle arena : {own, idle, others, changed})
    EXPECT_FALSE(engine::arena_of(arena)->is_abandoned);
  expect_sound("in the child");
  EXPECT_EQ(engine::destroy_arena(changed), EBUSY) << "cut off for good";
  EXPECT_EQ(engine::enter_scope(changed), EBUSY);
  enter(others);
  allocate(100);
  leave();
  leave();
  for (const ArenaHandle arena : {own, idle, others}) EXPECT_EQ(engine::destroy_arena(arena), 0);
  expect_sound("in the child");
}

// A block for another thread to free; that thread counts it.
struct Passed {
  void* block;
  std::atomic<int>* left;
};

class Queue {
 public:
  void push(Passed passed) {
    const Guard guard{lock_};
    passed_.push_back(passed);
  }
  void free_all() {
    std::vector<Passed> taken;
    {
      const Guard guard{lock_};
      taken.swap(passed_);
    }
    for (const Passed& passed : taken) {
      release(passed.block);
      passed.left->fetch_sub(1, std::memory_order_release);
    }
  }

 private:
  Mutex lock_;
  std::vector<Passed> passed_;
};

// One of several threads that create, use and destroy arenas concurrently. The next one frees half
// of its blocks.
void use_arenas(unsigned seed, int steps, Queue& own, Queue& next) {
  std::mt19937 random{seed};
  for (int step = 0; step < steps; ++step) {
    const ArenaHandle arena = make_arena();
    std::atomic<int> left{0};
    enter(arena);
    for (int i = 0; i < 60; ++i) {
      void* const p = allocate(some_sizes[random() % 9]);
      if (i % 2 == 0) {
        left.fetch_add(1, std::memory_order_relaxed);
        next.push({p, &left});
      } else if (i % 4 == 1) {
        release(p);
      }
    }
    if (random() % 2 == 0) leave();
    while (left.load(std::memory_order_acquire) != 0) {
      own.free_all();
      std::this_thread::yield();
    }
    if (random() % 8 == 0) engine::Engine{}.trim(0);
    if (random() % 4 == 0) engine::collect_idle_arenas();
    while (engine::leave_scope() == 0) continue;
    EXPECT_EQ(random() % 2 == 0 ? engine::reset_arena(arena) : 0, 0);
    EXPECT_EQ(engine::destroy_arena(arena), 0);
  }
}

TS_ENGINE_TEST(Arenas, ManyThreadsUseThem) {
  constexpr unsigned thread_count = 4;
  Queue queues[thread_count];
  std::atomic<unsigned> done{0};
  run_threads(thread_count, [&](unsigned i) {
    use_arenas(i, rounds(400), queues[i], queues[(i + 1) % thread_count]);
    ++done;
    while (done.load() != thread_count) {
      queues[i].free_all();
      std::this_thread::yield();
    }
  });
}

TS_ENGINE_TEST(Arenas, ALargeBlockThatIsResizedOutsideIsNoSample) {
  ASSERT_TRUE(engine::set_sampling_interval(1));
  const As as{make_heap()};
  const ArenaHandle arena = make_arena();
  enter(arena);
  void* const p = allocate(400'000);
  leave();
  ThreadHeap* const owner = owner_of(p);
  ASSERT_TRUE(engine::resize_large(p, 200'000));
  EXPECT_EQ(owner_of(p), owner);
  EXPECT_FALSE(engine::is_large_sample(span_of(p)));
  engine::Engine{}.release(p);
  EXPECT_EQ(usage_of(arena).used_bytes, 0U);
  EXPECT_EQ(engine::destroy_arena(arena), 0);
}

}  // namespace
}  // namespace ts::testing
