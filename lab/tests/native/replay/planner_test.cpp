// A plan has exactly the trace's calls, in its order, and waits for what it must and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "native/replay/planned.h"
#include "trace/format/error.h"
#include "trace/format/writer.h"

namespace ts::replay::testing {
namespace {

using plan::Operation;
using trace::Event;

void expect_sums(const plan::Image& image, const Expected& expected) {
  for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
    EXPECT_EQ(image.totals.calls[kind], expected.totals.calls[kind]) << plan::kind_names[kind];
    EXPECT_EQ(image.totals.bytes[kind], expected.totals.bytes[kind]) << plan::kind_names[kind];
  }
  EXPECT_EQ(image.number, expected.number);
  EXPECT_EQ(image.events, expected.events);
  EXPECT_EQ(image.live_bytes, expected.live_bytes);
  EXPECT_EQ(image.live_objects, expected.live_objects);
  EXPECT_EQ(image.peak_live_bytes, expected.peak_live_bytes);
  EXPECT_EQ(image.left_out, 0U);
}

// Of each call what the trace says; which object it is, by the slot that its allocation took.
void expect_calls(const plan::View& view, const plan::Image& image, const Expected& expected) {
  std::vector<std::uint64_t> cursors(image.threads);
  std::vector<std::uint64_t> objects(image.slots);
  std::size_t next = 0;
  const bool is_whole = plan::in_recorded_order(
      view, image, cursors.data(),
      [&](std::uint32_t thread, std::uint64_t /*index*/, const Operation& operation) {
        if (!plan::is_call(static_cast<plan::Kind>(operation.kind))) return;
        ASSERT_LT(next, expected.calls.size());
        const Event& event = expected.calls[next++];
        ASSERT_EQ(thread, event.thread);
        ASSERT_EQ(operation.kind, static_cast<std::uint64_t>(event.kind));
        ASSERT_EQ(operation.log2_alignment, event.log2_alignment);
        ASSERT_EQ(operation.size, std::min(event.size, plan::most_bytes));
        if (event.kind == trace::Kind::refused) return;
        if (trace::makes_object(event.kind)) objects[operation.slot] = event.object;
        ASSERT_EQ(objects[operation.slot], event.object);
      });
  EXPECT_TRUE(is_whole);
  EXPECT_EQ(next, expected.calls.size());
}

TEST(Planner, APlanHasTheCallsOfTheTraceInItsOrder) {
  for (const std::uint32_t threads : {1U, 2U, 16U}) {
    for (const std::uint64_t window : {0U, 1U, 7U, 1'000U}) {
      SCOPED_TRACE(::testing::Message() << threads << " threads, window " << window);
      Recipe recipe;
      recipe.seed = threads * 100 + window;
      recipe.threads = threads;
      const Planned planned{recipe, {.window = window}, true};
      ASSERT_TRUE(planned.is_right);
      expect_sums(planned.view.image(0), planned.expected[0]);
      expect_calls(planned.view, planned.view.image(0), planned.expected[0]);
    }
  }
}

TEST(Planner, ForkedChildrenArePlannedWithWhatTheyInherit) {
  Recipe recipe;
  recipe.forks = 5;
  for (const std::uint64_t window : {0U, 1U, 100U}) {
    const Planned planned{recipe, {.window = window}, true};
    ASSERT_EQ(planned.view.images(), 6U);
    for (std::size_t i = 0; i < planned.view.images(); ++i) {
      const plan::Image& image = planned.view.image(i);
      expect_sums(image, planned.expected[image.number]);
      EXPECT_EQ(image.parent, i == 0 ? plan::none : 0);
      EXPECT_EQ(image.inherited_objects > 0, i > 0);
    }
    expect_calls(planned.view, planned.view.image(0), planned.expected[0]);
    EXPECT_TRUE(planned.summary.not_planned.empty());
  }
}

TEST(Planner, TheProgramWithTheMostEventsIsPlannedWithItsChildren) {
  Recipe recipe;
  recipe.forks = 5;  // 1,000 events each
  recipe.execs = 2;
  recipe.exec_events = 14'000;
  const auto first_of = [](const Planned& planned) { return planned.view.image(0).number; };
  EXPECT_EQ(first_of(Planned{recipe}), 0U);
  EXPECT_EQ(first_of(Planned{recipe, {.image = 7}}), 7U);
  recipe.exec_events = 16'000;
  const Planned other{recipe};
  EXPECT_EQ(first_of(other), 6U);  // the first of equal ones
  expect_sums(other.view.image(0), other.expected[6]);
  EXPECT_EQ(other.summary.not_planned, (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5, 7}));
}

TEST(Planner, ObjectsOfOneThreadHaveNoTurns) {
  Recipe recipe;
  recipe.everybody_shares = false;
  recipe.threads = 8;
  const Planned planned{recipe};
  const plan::Image& image = planned.view.image(0);
  std::vector<std::uint64_t> cursors(image.threads);
  std::uint64_t calls = 0;
  (void)plan::in_recorded_order(
      planned.view, image, cursors.data(),
      [&](std::uint32_t /*thread*/, std::uint64_t /*index*/, const Operation& operation) {
        if (!plan::is_call(static_cast<plan::Kind>(operation.kind))) return;
        EXPECT_EQ(operation.flags & ~plan::flag_cut, 0);
        ++calls;
      });
  EXPECT_GT(calls, 9'000U);
}

TEST(Planner, SlotsAreReused) {
  Recipe recipe;
  recipe.events = 100'000;
  recipe.live_objects = 100;
  for (const std::uint64_t window : {0U, 100U}) {
    const Planned planned{recipe, {.window = window}};
    // Each thread keeps some, and what others freed is not old enough at once.
    EXPECT_LT(planned.view.image(0).slots, 10'000U);
    EXPECT_GE(planned.view.image(0).slots, planned.view.image(0).live_objects);
  }
}

TEST(Planner, TimesAreThoseOfTheEvents) {
  Recipe recipe;
  recipe.events = 2'000;
  const Planned planned{recipe, {.with_times = true}, true};
  const plan::Image& image = planned.view.image(0);
  const std::uint64_t* const times = planned.view.times(image);
  ASSERT_NE(times, nullptr);
  std::vector<std::uint64_t> cursors(image.threads);
  std::size_t next = 0;
  (void)plan::in_recorded_order(
      planned.view, image, cursors.data(),
      [&](std::uint32_t /*thread*/, std::uint64_t index, const Operation& operation) {
        if (!plan::is_call(static_cast<plan::Kind>(operation.kind))) return;
        ASSERT_EQ(times[index], planned.expected[0].calls[next++].time_ns);
      });
  EXPECT_EQ(next, planned.expected[0].calls.size());
}

// A trace in which things are wrong or missing.
class OddTrace : public ::testing::Test {
 protected:
  const plan::Image& plan_of(const std::vector<Event>& events, trace::PlanSettings settings = {}) {
    trace::Writer writer = trace::Writer(folder.trace(), true);
    const std::uint32_t image = writer.begin_image({});
    for (const Event& event : events) writer.add(image, event);
    writer.finish();
    summary = trace::write_plan(trace::Reader{folder.trace()}, settings, folder.plan(), true);
    plan::Problem problem;
    EXPECT_TRUE(view.open(folder.plan().c_str(), problem) && check_plan(view, problem))
        << problem.text;
    return view.image(0);
  }

  Folder folder;
  plan::View view;
  trace::PlanSummary summary;
};

TEST_F(OddTrace, AnImageWithoutEventsIsAPlanWithoutOperations) {
  const plan::Image& image = plan_of({});
  EXPECT_EQ(image.events, 0U);
  EXPECT_EQ(image.threads, 1U);
  EXPECT_EQ(image.epochs, 0U);
}

TEST_F(OddTrace, WhatIsTooLargeForAnyPlanIsLeftOut) {
  const std::uint64_t huge = plan::most_bytes + 1;
  const plan::Image& image = plan_of({{trace::Kind::malloc, 0, 0, 0, huge, 0},
                                      {trace::Kind::malloc, 0, 0, 1, 10, 0},
                                      {trace::Kind::free, 0, 0, 0, 0, 0},
                                      {trace::Kind::realloc, 0, 0, 1, huge, 0},
                                      {trace::Kind::free, 0, 0, 1, 0, 0}});
  EXPECT_EQ(image.left_out, 3U);
  EXPECT_EQ(image.peak_live_bytes, 10U);
  EXPECT_EQ(image.live_bytes, 0U);
}

TEST_F(OddTrace, AFirstThreadThatEndsGoesOn) {
  const plan::Image& image = plan_of({{trace::Kind::malloc, 0, 0, 0, 10, 0},
                                      {trace::Kind::thread_begin, 0, 1, 0, 0, 0},
                                      {trace::Kind::thread_end, 0, 0, 0, 0, 0},
                                      {trace::Kind::free, 0, 1, 0, 0, 0},
                                      {trace::Kind::thread_end, 0, 1, 0, 0, 0}});
  EXPECT_EQ(image.ends, 1U);
  EXPECT_EQ(image.live_bytes, 0U);
}

TEST_F(OddTrace, AThreadThatFreesAfterItsEndEndsThen) {
  const plan::Image& image = plan_of({{trace::Kind::refused, 0, 0, 0, 10, 0},
                                      {trace::Kind::thread_begin, 0, 1, 0, 0, 0},
                                      {trace::Kind::malloc, 0, 1, 0, 10, 0},
                                      {trace::Kind::thread_end, 0, 1, 0, 0, 0},
                                      {trace::Kind::free, 0, 1, 0, 0, 0}});
  EXPECT_EQ(image.ends, 1U);
  EXPECT_EQ(image.left_out, 0U);
}

TEST_F(OddTrace, ForksOfWhichNothingIsKnownStillFork) {
  const plan::Image& image = plan_of({{trace::Kind::malloc, 0, 0, 0, 10, 0},
                                      {trace::Kind::fork, 0, 0, 1, 0, 0},
                                      {trace::Kind::free, 0, 0, 0, 0, 0}});
  EXPECT_EQ(view.images(), 1U);
  EXPECT_EQ(image.live_bytes, 0U);
}

// Chunks of a trace are lost: threads whose beginning is not there, objects that come from nowhere,
// forks of nobody. What is left is a plan that is as right as any.
TEST(Planner, ADamagedTraceIsPlannedAsFarAsItIsIntact) {
  Recipe recipe;
  recipe.events = 300'000 / TS_TEST_SLOWNESS;
  recipe.forks = 3;
  recipe.threads = 8;
  const Folder folder;
  write_synthetic(folder.trace(), recipe);
  std::ifstream file{folder.trace(), std::ios::binary};
  const std::vector<char> whole{std::istreambuf_iterator<char>{file}, {}};
  int with_gaps = 0;
  for (std::size_t eighth = 1; eighth < 8; ++eighth) {
    std::vector<char> bytes = whole;
    for (std::size_t i = 0; i < 64; ++i) bytes[whole.size() / 8 * eighth + i] ^= 0x55;
    {
      std::ofstream damaged{folder.trace(), std::ios::binary};
      damaged.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    for (const std::uint64_t window : {0U, 500U}) {
      const trace::Reader reader{folder.trace()};
      const trace::PlanSummary summary =
          trace::write_plan(reader, {.window = window}, folder.plan(), true);
      with_gaps += summary.has_gaps ? 1 : 0;
      plan::View view;
      plan::Problem problem;
      EXPECT_TRUE(view.open(folder.plan().c_str(), problem) && check_plan(view, problem))
          << eighth << problem.text;
    }
  }
  EXPECT_GT(with_gaps, 0);
}

TEST(Planner, AForkedImageIsPlannedWithItsParentOnly) {
  Recipe recipe;
  recipe.forks = 1;
  const Planned planned{recipe};
  const trace::Reader reader{planned.folder.trace()};
  EXPECT_THROW((void)trace::write_plan(reader, {.image = 1}, planned.folder.plan(), true),
               trace::Error);
}

}  // namespace
}  // namespace ts::replay::testing
