// Memory limits on a system that reports the cgroup usage the test dictates. tests/footprint checks
// the same in whole processes.
#include "features/limits/limits.h"

#include <vector>

#include "core/heap_lifecycle.h"
#include "core/page_heap.h"
#include "os/options.h"
#include "unit/engine/fresh_engine.h"

namespace ts::testing {
namespace {

constexpr std::size_t mebi = 1 << 20;

// A thread that allocates, in a process that has read its options.
struct Program {
  engine::ThreadHeap& heap = make_heap();
  As as{heap};
  engine::Engine heaps;

  explicit Program(bool reads_options = true) {
    fake_os::answers.clock = 10'000;
    if (reads_options) engine::follow_limit_options();  // as begin_process() does
  }
  void* allocate(std::size_t bytes) {
    return heaps.allocate(bytes, bytes < mebi ? 16 : without_colour);
  }
  // Grows in blocks of 1 MiB.
  void grow(std::size_t megabytes) {
    for (; megabytes != 0; --megabytes) ASSERT_NE(allocate(mebi), nullptr);
  }
  // Leaves this much dirty, in pieces of 1 MiB that no larger block fits into.
  void leave_dirty(std::size_t megabytes) {
    std::vector<void*> freed;
    for (; megabytes != 0; --megabytes) {
      freed.push_back(allocate(mebi));
      allocate(40'000);
    }
    for (void* const block : freed) release(block);
  }
  static std::size_t dirty() { return page_heap.dirty_pages() * engine::page_bytes; }
};

void set(const char* name, const char* value) {
  ASSERT_TRUE(set_option(name, value));
  engine::follow_options_soon();
}

// The cgroup uses what the engine touched, plus this much.
std::size_t others = 0;
std::size_t used_by_group() { return others + page_heap.touched_pages() * engine::page_bytes; }

void be_in_group(std::size_t megabytes) {
  fake_os::answers.group_limit = megabytes * mebi;
  fake_os::answers.group_used = used_by_group;
}

TS_ENGINE_TEST(Limits, ASmallHeapAsksNothing) {
  be_in_group(100);
  Program program;
  program.grow(62);
  EXPECT_EQ(fake_os::answers.looks_for_group, 0U);
  program.grow(3);
  EXPECT_EQ(fake_os::answers.looks_for_group, 1U);
  EXPECT_EQ(fake_os::answers.looks_at_group, 1U);
}

TS_ENGINE_TEST(Limits, WithoutAGroupLooksAreRare) {
  Program program;
  program.grow(2000);
  EXPECT_GE(fake_os::answers.looks_for_group, 5U);
  EXPECT_LE(fake_os::answers.looks_for_group, 12U);
  EXPECT_EQ(fake_os::answers.looks_at_group, 0U);
}

TS_ENGINE_TEST(Limits, DirtyMemoryGoesBackAtNineTenthsOfTheGroups) {
  be_in_group(200);
  Program program;
  program.grow(100);
  program.leave_dirty(14);
  others = 40 * mebi;
  program.grow(4);
  EXPECT_EQ(fake_os::discarded_bytes(), 0U);
  others = 70 * mebi;
  ASSERT_NE(program.allocate(4 * mebi), nullptr);
  EXPECT_GE(fake_os::discarded_bytes(), 9 * mebi) << "4 MiB of 14 may have been used";
}

TS_ENGINE_TEST(Limits, AboveHalfOfTheLimitEachStepLooks) {
  be_in_group(400);
  Program program;
  program.grow(170);
  const unsigned before = fake_os::answers.looks_at_group;
  EXPECT_LE(before, 4U);
  program.grow(60);
  EXPECT_GE(fake_os::answers.looks_at_group - before, 15U);
  EXPECT_LE(fake_os::answers.looks_at_group - before, 30U);
}

TS_ENGINE_TEST(Limits, ChangeWhileTheProgramRuns) {
  be_in_group(10'000);
  Program program;
  program.grow(100);
  program.leave_dirty(14);
  be_in_group(150);  // now
  program.grow(2);
  EXPECT_EQ(fake_os::discarded_bytes(), 0U);
  fake_os::answers.clock = 12'000;
  engine::look_at_limits();  // as a background thread does
  EXPECT_EQ(fake_os::discarded_bytes(), 0U) << "116 MiB of 135";
  be_in_group(120);
  fake_os::answers.clock = 14'000;
  engine::look_at_limits();
  EXPECT_GE(fake_os::discarded_bytes(), 11 * mebi);
}

TS_ENGINE_TEST(Limits, WhatIsLiveAboveTheLimitIsPurgedForOnceASecond) {
  be_in_group(100);
  Program program;
  program.grow(120);
  const unsigned before = fake_os::answers.looks_at_group;
  program.grow(20);
  EXPECT_EQ(fake_os::answers.looks_at_group, before) << "within the second";
  fake_os::answers.clock = 12'000;
  program.grow(20);
  EXPECT_EQ(fake_os::answers.looks_at_group, before + 2) << "before the purge, and after it";
  // What becomes dirty meanwhile is purged too.
  program.leave_dirty(10);
  ASSERT_NE(program.allocate(4 * mebi), nullptr);
  EXPECT_GE(fake_os::discarded_bytes(), 9 * mebi);
  EXPECT_EQ(fake_os::answers.looks_at_group, before + 2);
}

TS_ENGINE_TEST(Limits, InBytesCountTheEnginesOwnMemory) {
  be_in_group(100);
  others = 1000 * mebi;
  Program program;
  set("LIMIT", "50M");
  program.grow(30);
  program.leave_dirty(10);
  ASSERT_NE(program.allocate(4 * mebi), nullptr);
  EXPECT_EQ(fake_os::discarded_bytes(), 0U);
  ASSERT_NE(program.allocate(8 * mebi), nullptr);
  EXPECT_GE(fake_os::discarded_bytes(), 9 * mebi);
  EXPECT_EQ(fake_os::answers.looks_for_group, 0U);
}

TS_ENGINE_TEST(Limits, InPercentAreOfTheGroupOrOfTheMachine) {
  for (const bool has_group : {true, false}) {
    in_child([has_group] {
      fake_os::answers.machine_memory = 400 * mebi;
      if (has_group) be_in_group(200);
      Program program;
      set("HARD_LIMIT", "50%");
      std::size_t count = 0;
      while (program.allocate(mebi) != nullptr) ++count;
      EXPECT_EQ(count, has_group ? 100U : 200U);
    });
  }
}

TS_ENGINE_TEST(Limits, TheHardOneRefusesUntilMemoryIsFree) {
  Program program;
  set("HARD_LIMIT", "32M");
  std::vector<void*> blocks;
  ::testing::internal::CaptureStderr();
  while (void* const block = program.allocate(mebi)) blocks.push_back(block);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "tsmalloc: out of memory: 33554432 bytes are in use, 1048576 more are needed, and "
            "TSMALLOC_HARD_LIMIT is 32M; further refusals are not reported (ts_on_event)\n");
  EXPECT_EQ(blocks.size(), 32U);
  EXPECT_EQ(errno, ENOMEM);
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(program.allocate(16), nullptr) << "nor a slab";
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(fake_os::answers.explained_refusals, 2U);
  EXPECT_FALSE(program.heaps.resize(blocks[0], 2 * mebi));
  EXPECT_EQ(program.heaps.move(blocks[0], 2 * mebi), nullptr);
  release(blocks[3]);
  release(blocks[7]);
  void* const larger = program.allocate(2 * mebi);  // both fresh, and neither long enough
  EXPECT_NE(larger, nullptr);
  EXPECT_GE(fake_os::discarded_bytes(), mebi);
  EXPECT_EQ(program.allocate(mebi), nullptr);
  set("HARD_LIMIT", "off");
  program.grow(100);
}

// By the page heap alone, before a check of the limits is due.
TS_ENGINE_TEST(Limits, WhatIsChosenToMakeRoomIsPurgedEvenIfAThreadHasEnded) {
  ThreadHeap& ended = make_heap();
  allocate(ended, 3000);
  {
    const Guard guard{engine::abandoned_lock};
    engine::abandon(ended, false, 0);
  }
  Program program{false};
  page_heap.limit(engine::PageHeap::no_limit, 32 * mebi);
  void* const dirty = program.allocate(6 * mebi);
  program.grow(20);
  release(dirty);
  EXPECT_NE(program.allocate(10 * mebi), nullptr);
}

TS_ENGINE_TEST(Limits, WhatTheSystemDoesNotTakeStaysCounted) {
  Program program;
  set("HARD_LIMIT", "32M");
  program.leave_dirty(14);
  fake_os::refuse(fake_os::Call::discard);
  EXPECT_EQ(program.allocate(20 * mebi), nullptr);
  fake_os::refuse_nothing();
  EXPECT_NE(program.allocate(20 * mebi), nullptr);
}

std::vector<int> told;
std::size_t told_bytes = 0;
void note(int event, std::size_t bytes) {
  told.push_back(event);
  told_bytes = bytes;
}

TS_ENGINE_TEST(Limits, AreToldOnceAMinute) {
  be_in_group(100);
  Program program;
  program.heaps.set_event_handler(note);
  program.grow(90);
  EXPECT_TRUE(told.empty());
  program.grow(20);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(told[0], 1);
  EXPECT_GE(told_bytes, 86 * mebi);
  fake_os::answers.clock = 69'000;
  program.grow(10);
  EXPECT_EQ(told.size(), 1U);
  fake_os::answers.clock = 71'000;
  program.grow(10);
  EXPECT_EQ(told.size(), 2U);
}

TS_ENGINE_TEST(Limits, AreToldToAHandlerThatComesLater) {
  be_in_group(100);
  Program program;
  program.grow(110);
  program.heaps.set_event_handler(note);
  fake_os::answers.clock = 12'000;
  program.grow(10);
  EXPECT_EQ(told, std::vector<int>{1});
}

TS_ENGINE_TEST(Limits, OfBothKindsInOneCallAreBothTold) {
  Program program;
  set("LIMIT", "8M");
  set("HARD_LIMIT", "64M");
  program.heaps.set_event_handler(note);
  EXPECT_EQ(program.allocate(100 * mebi), nullptr);
  EXPECT_NE(program.allocate(16), nullptr);
  EXPECT_EQ(told, (std::vector<int>{1, 2}));
}

TS_ENGINE_TEST(Limits, EventsOfSmallBlocksAreToldByALaterRefill) {
  Program program;
  set("LIMIT", "8M");
  program.heaps.set_event_handler(note);
  for (int i = 0; i < 15'000; ++i) program.allocate(1000);
  EXPECT_EQ(told.size(), 1U);
  program.heaps.set_event_handler(nullptr);
  fake_os::answers.clock = 100'000;
  for (int i = 0; i < 15'000; ++i) program.allocate(1000);
  EXPECT_EQ(told.size(), 1U);
}

TS_ENGINE_TEST(Limits, AboveThemNothingAsksForHugePages) {
  current_options.huge_pages = HugePages::always;
  Program program;
  set("LIMIT", "32M");
  program.grow(40);
  fake_os::take_events();
  program.grow(20);
  for (const fake_os::Event& event : fake_os::take_events())
    EXPECT_NE(event.call, fake_os::Call::prefer_huge_pages);
  set("LIMIT", "off");
  program.grow(20);
  bool has_asked = false;
  for (const fake_os::Event& event : fake_os::take_events())
    has_asked |= event.call == fake_os::Call::prefer_huge_pages;
  EXPECT_TRUE(has_asked);
}

}  // namespace
}  // namespace ts::testing
