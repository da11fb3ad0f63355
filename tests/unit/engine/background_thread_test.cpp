// When a background thread that an option asks for is started, and what ts_housekeep() does without
// one, step by step. footprint.background_thread checks in whole processes when there is one.
#include "features/background/background_thread.h"

#include <cerrno>

#include "core/attention.h"
#include "core/heap_lifecycle.h"
#include "core/hooks.h"
#include "core/page_heap.h"
#include "core/remote_frees.h"
#include "engine/follow_options.h"
#include "features/background/rest.h"
#include "os/options.h"
#include "unit/engine/fresh_engine.h"

namespace ts::testing {
namespace {

using engine::housekeep;

// How often the engine tried to start a thread. All attempts are refused.
unsigned asked = 0;

void refuse_threads() {
  current_options.background = Background::automatic;
  fake_os::refuse_if([](const fake_os::Request& request) {
    const bool is_thread = request.call == fake_os::Call::start_thread;
    asked += is_thread ? 1 : 0;
    return is_thread;
  });
}

// What malloc does in a thread without a heap, except attaching one.
void thread_begins() {
  engine::hooks::thread_begins();
  engine::hooks::attend();
}

TS_ENGINE_TEST(BackgroundThread, AChangedOptionStartsItOnce) {
  refuse_threads();
  ThreadHeap& heap = make_heap();
  current_options.background = Background::off;
  thread_begins();
  current_options.background = Background::automatic;
  engine::follow_options();
  EXPECT_EQ(asked, 0U) << "a process of one thread";
  current_options.background = Background::on;
  engine::follow_options_soon();
  EXPECT_EQ(asked, 0U) << "where a lock may be held";
  allocate(heap, 48);
  EXPECT_EQ(asked, 1U);
  engine::follow_options();
  EXPECT_EQ(asked, 1U);
  EXPECT_EQ(engine::attention, 0U);
}

constexpr std::size_t mib = 1 << 20;
constexpr std::uint64_t begin_ms = 1000;

constexpr std::size_t mib_pages = mib / engine::page_bytes;

engine::Span* allocate_pages(std::size_t pages) {
  return page_heap.allocate(pages, 1, 0, engine::PageHeap::From::anywhere);
}

TS_ENGINE_TEST(BackgroundThread, MuchDirtyMemoryEndsItsRest) {
  engine::Span* const small = allocate_pages(mib_pages);
  engine::Span* const large = allocate_pages(9 * mib_pages);
  allocate_pages(1);
  EXPECT_TRUE(engine::may_rest(false));
  EXPECT_TRUE(engine::is_resting());
  page_heap.release(small);
  EXPECT_TRUE(engine::is_resting()) << "so much may stay";
  page_heap.release(large);
  EXPECT_FALSE(engine::is_resting());
  EXPECT_FALSE(engine::may_rest(false));
  EXPECT_FALSE(engine::is_resting());
  EXPECT_TRUE(engine::may_rest(true)) << "nothing more could be done";
  page_heap.release(allocate_pages(mib_pages));
  EXPECT_TRUE(engine::is_resting());
  engine::forget_background_thread();
  EXPECT_FALSE(engine::is_resting()) << "the child of a fork has none";
}

TS_ENGINE_TEST(BackgroundThread, UncollectedFreesEndItsRestOnce) {
  constexpr std::uint32_t little = mib_pages - 1;
  engine::hooks::frees_stay_uncollected(little);
  EXPECT_TRUE(engine::may_rest(false));
  engine::hooks::frees_stay_uncollected(2 * mib_pages);
  EXPECT_TRUE(engine::is_resting()) << "fewer than 4 MiB can wait";
  engine::hooks::frees_stay_uncollected(mib_pages + 1);
  EXPECT_FALSE(engine::is_resting());
  EXPECT_FALSE(engine::may_rest(false));
  EXPECT_TRUE(engine::take_uncollected());
  EXPECT_FALSE(engine::take_uncollected());
  EXPECT_TRUE(engine::may_rest(false));
}

// Frees spans of 5 MiB, between spans in use.
void leave_dirty(unsigned spans) {
  using From = engine::PageHeap::From;
  std::vector<engine::Span*> freed;
  for (unsigned i = 0; i < spans; ++i) {
    freed.push_back(page_heap.allocate(5 * mib / engine::page_bytes, 1, 0, From::anywhere));
    page_heap.allocate(1, 1, 0, From::anywhere);
  }
  for (engine::Span* const span : freed) page_heap.release(span);
  fake_os::answers.clock = begin_ms;
}

// Performs steps as they fall due until none is left; returns how many milliseconds that took.
std::uint64_t housekeep_until_none_is_due(std::size_t most_of_a_step) {
  std::uint64_t now = begin_ms;
  for (int steps = 0; steps < 100; ++steps) {
    const std::size_t before = fake_os::discarded_bytes();
    const int pause = housekeep();
    EXPECT_LE(fake_os::discarded_bytes() - before, most_of_a_step);
    if (pause == -1) return now - begin_ms;
    EXPECT_GE(pause, 0);
    EXPECT_LE(pause, 200);
    now += static_cast<unsigned>(pause);
    fake_os::answers.clock = now;
  }
  ADD_FAILURE() << "a step is due for ever";
  return 0;
}

TS_ENGINE_TEST(BackgroundThread, StepsOfTheProgramGiveBackWhatStaysIdle) {
  leave_dirty(3);
  EXPECT_LE(housekeep_until_none_is_due(10 * mib), 1000U);
  EXPECT_GE(fake_os::discarded_bytes(), 14 * mib - 6 * os::page_bytes());
  EXPECT_EQ(housekeep(), -1);
}

TS_ENGINE_TEST(BackgroundThread, StepsEndWhereTheSystemTakesNothing) {
  fake_os::refuse(fake_os::Call::discard);
  leave_dirty(3);
  errno = 7;
  EXPECT_LE(housekeep_until_none_is_due(0), 1000U);
  EXPECT_EQ(errno, 7);
}

TS_ENGINE_TEST(BackgroundThread, AStepDoesNotWaitForAnother) {
  leave_dirty(3);
  constexpr int not_yet = -2;
  int in_a_purge = not_yet;
  fake_os::refuse_if([&](const fake_os::Request& request) {
    if (request.call == fake_os::Call::discard && in_a_purge == not_yet) {
      in_a_purge = 0;
      in_a_purge = housekeep();
    }
    return false;
  });
  housekeep_until_none_is_due(10 * mib);
  EXPECT_EQ(in_a_purge, 200);
}

TS_ENGINE_TEST(BackgroundThread, AStepLeavesTheProcessToTheBackgroundThread) {
  leave_dirty(3);
  engine::attach_background_thread();
  EXPECT_EQ(housekeep_until_none_is_due(0), 0U);
}

TS_ENGINE_TEST(BackgroundThread, AStepRetiresWhatRemoteFreesEmptied) {
  ThreadHeap& owner = make_heap();
  ThreadHeap& other = make_heap();
  std::vector<void*> blocks = allocate_many(owner, 1000, 1000);
  for (void* const block : blocks) release(other, block);
  engine::flush_batches(other);
  const unsigned size_class = engine::class_for(1000);
  ASSERT_GT(owner.slabs[size_class], 10U);
  fake_os::answers.clock = begin_ms;
  housekeep();
  EXPECT_LT(owner.slabs[size_class], 3U);
}

std::size_t pending_pages(const ThreadHeap& heap) {
  std::size_t pages = 0;
  page_heap.for_each([&](const engine::Span& span) {
    if (span.state != engine::SpanState::slab ||
        (engine::span_entry(span) ^ heap.self) >= engine::heap_unit)
      return;
    if (engine::remote_frees_of(&span).pending != 0) pages += span.pages;
  });
  return pages;
}

// Some before the heap is abandoned, the others when nothing else is left to do.
TS_ENGINE_TEST(BackgroundThread, CollectsWhatWasFreedOfHeapsWithoutAThread) {
  ThreadHeap& ended = make_heap();
  ThreadHeap& other = make_heap();
  std::vector<void*> blocks = allocate_many(ended, 20'000, 1000);
  const auto free_each = [&](std::size_t first, std::size_t step) {
    for (std::size_t i = first; i < blocks.size(); i += step) release(other, blocks[i]);
    const As as{other};
    engine::flush_batches(other);
  };
  free_each(1, 4);
  abandon(ended, false);
  EXPECT_GT(pending_pages(ended), 1000U);
  fake_os::answers.clock = begin_ms;
  housekeep_until_none_is_due(10 * mib);
  EXPECT_EQ(pending_pages(ended), 0U);
  free_each(2, 400);
  fake_os::answers.clock = begin_ms + 10'000;
  EXPECT_EQ(housekeep_until_none_is_due(10 * mib), 0U) << "too few to be collected";
  free_each(3, 4);
  EXPECT_TRUE(engine::has_uncollected());
  housekeep_until_none_is_due(10 * mib);
  EXPECT_EQ(pending_pages(ended), 0U);
}

}  // namespace
}  // namespace ts::testing
