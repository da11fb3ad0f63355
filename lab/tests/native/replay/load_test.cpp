// A plan has exactly the trace's calls, in its order, and waits for what it must and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>

#include "native/replay/loaded.h"
#include "native/trace/events.h"
#include "trace/writer.h"

namespace ts::replay::testing {
namespace {

using plan::Operation;
using trace::Event;
using trace::Kind;
using trace::testing::event_of;

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

std::span<const Operation> operations(const plan::Image& image) {
  return {image.operation_table, image.operations};
}

void expect_calls(const plan::Image& image, const Expected& expected) {
  std::size_t next = 0;
  for (const Operation& operation : operations(image)) {
    if (!plan::is_call(static_cast<plan::Kind>(operation.kind))) continue;
    ASSERT_LT(next, expected.calls.size());
    const Event& event = expected.calls[next++];
    ASSERT_EQ(operation.thread, event.thread);
    ASSERT_EQ(operation.kind, static_cast<std::uint64_t>(event.kind));
    ASSERT_EQ(operation.log2_alignment, event.log2_alignment);
    ASSERT_EQ(operation.size, std::min(event.size, plan::max_bytes));
    ASSERT_EQ(operation.slot, event.slot);
  }
  EXPECT_EQ(next, expected.calls.size());
}

// From its first operation on, each thread comes by all of its own, and each epoch is entered by the
// threads that have operations in it.
void expect_links(const plan::Image& image) {
  std::vector<bool> is_seen(image.operations);
  std::vector<std::uint32_t> threads(image.epochs);
  for (std::uint32_t thread = 0; thread < image.threads; ++thread) {
    std::uint32_t epoch = plan::none;
    std::uint32_t at = image.thread_table[thread].first;
    for (; at != plan::none; at = image.operation_table[at].next) {
      ASSERT_EQ(image.operation_table[at].thread, thread);
      is_seen[at] = true;
      const bool is_same = epoch != plan::none && at < image.epoch_table[epoch + 1].first;
      if (is_same) continue;
      epoch = epoch == plan::none ? 0 : epoch;
      while (image.epoch_table[epoch + 1].first <= at) ++epoch;
      ++threads[epoch];
    }
  }
  EXPECT_EQ(std::count(is_seen.begin(), is_seen.end(), false), 0);
  for (std::uint32_t i = 0; i < image.epochs; ++i) {
    ASSERT_EQ(threads[i], image.epoch_table[i].threads);
  }
  EXPECT_EQ(image.epoch_table[image.epochs].first, image.operations);
}

// In the recorded order, an operation of another thread than the one before it in the slot waits
// for its turn, and finds it there.
void expect_turns(const plan::Image& image) {
  struct Last {
    std::uint32_t thread;
    std::uint32_t turns;
  };
  std::map<std::uint32_t, Last> slots;
  for (const Operation& operation : operations(image)) {
    if (operation.kind > static_cast<std::uint64_t>(plan::Kind::free)) continue;
    const auto [slot, is_first] = slots.try_emplace(operation.slot, Last{operation.thread, 0});
    const bool is_others = !is_first && slot->second.thread != operation.thread;
    ASSERT_EQ((operation.flags & plan::flag_waits) != 0, is_others);
    slot->second.thread = operation.thread;
    if ((operation.flags & plan::flag_shared) != 0) {
      ASSERT_EQ(operation.turn, slot->second.turns++);
    }
    ASSERT_FALSE(is_others && (operation.flags & plan::flag_shared) == 0);
  }
}

TEST(Load, APlanHasTheCallsOfTheTraceInItsOrder) {
  for (const std::uint32_t threads : {1U, 2U, 16U}) {
    for (const std::uint64_t window : {0U, 1U, 7U, 1'000U}) {
      SCOPED_TRACE(::testing::Message() << threads << " threads, window " << window);
      Recipe recipe;
      recipe.seed = threads * 100 + window;
      recipe.threads = threads;
      const Loaded loaded{recipe, {.window = window}, true};
      ASSERT_TRUE(loaded.is_right);
      expect_sums(loaded.plan.image(0), loaded.expected[0]);
      expect_calls(loaded.plan.image(0), loaded.expected[0]);
      expect_turns(loaded.plan.image(0));
      expect_links(loaded.plan.image(0));
    }
  }
}

TEST(Load, ForkedChildrenArePlannedWithWhatTheyInherit) {
  Recipe recipe;
  recipe.forks = 5;
  for (const std::uint64_t window : {0U, 1U, 100U}) {
    const Loaded loaded{recipe, {.window = window}, true};
    ASSERT_EQ(loaded.plan.images(), 6U);
    for (std::size_t i = 0; i < loaded.plan.images(); ++i) {
      const plan::Image& image = loaded.plan.image(i);
      expect_sums(image, loaded.expected[image.number]);
      EXPECT_EQ(image.parent, i == 0 ? plan::none : 0);
      EXPECT_EQ(image.inherited_bytes > 0, i > 0);
      expect_calls(image, loaded.expected[image.number]);
      expect_links(image);
    }
  }
}

TEST(Load, TheProgramWithTheMostEventsIsPlannedWithItsChildren) {
  Recipe recipe;
  recipe.forks = 5;  // 1,000 events each
  recipe.execs = 2;
  recipe.exec_events = 14'000;
  const auto first_of = [](const Loaded& loaded) { return loaded.plan.image(0).number; };
  EXPECT_EQ(first_of(Loaded{recipe}), 0U);
  EXPECT_EQ(first_of(Loaded{recipe, {.image = 7}}), 7U);
  recipe.exec_events = 16'000;
  const Loaded other{recipe};
  EXPECT_EQ(first_of(other), 6U);  // the first of equal ones
  EXPECT_STREQ(other.plan.program(), "other");
  expect_sums(other.plan.image(0), other.expected[6]);
}

TEST(Load, ThreadsThatShareNothingNeverWait) {
  Recipe recipe;
  recipe.everybody_shares = false;
  recipe.threads_end = false;  // what is free then may be anybody's
  recipe.threads = 8;
  const Loaded loaded{recipe};
  std::uint64_t calls = 0;
  for (const Operation& operation : operations(loaded.plan.image(0))) {
    if (!plan::is_call(static_cast<plan::Kind>(operation.kind))) continue;
    EXPECT_EQ(operation.flags & ~plan::flag_cut, 0);
    ++calls;
  }
  EXPECT_GT(calls, 9'000U);
}

TEST(Load, TimesAreThoseOfTheEvents) {
  Recipe recipe;
  recipe.events = 2'000;
  const Loaded loaded{recipe, {.with_times = true}, true};
  const plan::Image& image = loaded.plan.image(0);
  ASSERT_NE(image.times, nullptr);
  std::size_t next = 0;
  for (std::uint32_t i = 0; i < image.operations; ++i) {
    if (!plan::is_call(static_cast<plan::Kind>(image.operation_table[i].kind))) continue;
    ASSERT_EQ(image.times[i], loaded.expected[0].calls[next++].time_ns);
  }
  EXPECT_EQ(next, loaded.expected[0].calls.size());
}

// Traces of a few events, some of which make no sense.
class OddTrace : public ::testing::Test {
 protected:
  // "" or what is said of it.
  std::string load(const std::vector<Event>& events, plan::LoadSettings settings = {}) {
    trace::Writer writer{folder.trace(), true};
    const std::uint32_t image = writer.begin_image({});
    for (const Event& event : events) writer.add(image, event);
    writer.finish();
    trace::Problem problem;
    return plan.load(folder.trace().c_str(), settings, problem) ? "" : problem.text;
  }
  void expect_refused(const std::vector<Event>& events, const std::string& why) {
    const std::string said = load(events);
    EXPECT_NE(said.find(why), std::string::npos) << said;
    EXPECT_NE(said.find("record it again"), std::string::npos) << said;
  }

  Folder folder;
  plan::Plan plan;
};

TEST_F(OddTrace, ATraceWithoutEventsIsRefused) {
  EXPECT_NE(load({}).find("contains no events"), std::string::npos);
}

TEST_F(OddTrace, NoSuchImage) {
  EXPECT_NE(load({event_of(Kind::malloc, 0, {0, 0}, 1)}, {.image = 1}).find("no image 1"),
            std::string::npos);
}

TEST_F(OddTrace, WhatIsTooLargeToReplayIsLeftOut) {
  const std::uint64_t huge = plan::max_bytes + 1;
  ASSERT_EQ(load({event_of(Kind::malloc, 0, {0, 0}, huge), event_of(Kind::malloc, 0, {1, 0}, 10),
                  event_of(Kind::free, 0, {0, 0}), event_of(Kind::realloc, 0, {1, 0}, huge),
                  event_of(Kind::free, 0, {1, 0})}),
            "");
  const plan::Image& image = plan.image(0);
  EXPECT_EQ(image.left_out, 3U);
  EXPECT_EQ(image.peak_live_bytes, 10U);
  EXPECT_EQ(image.live_bytes, 0U);
}

TEST_F(OddTrace, AFirstThreadThatEndsGoesOn) {
  ASSERT_EQ(load({event_of(Kind::malloc, 0, {0, 0}, 10), event_of(Kind::thread_begin, 1, {0, 0}),
                  event_of(Kind::thread_end, 0, {0, 0}), event_of(Kind::free, 1, {0, 0}),
                  event_of(Kind::thread_end, 1, {0, 0})}),
            "");
  EXPECT_EQ(plan.image(0).ends, 1U);
  EXPECT_EQ(plan.image(0).live_bytes, 0U);
}

TEST_F(OddTrace, ForksOfWhichNothingIsKnownStillFork) {
  ASSERT_EQ(load({event_of(Kind::malloc, 0, {0, 0}, 10), event_of(Kind::fork, 0, {7, 0}),
                  event_of(Kind::free, 0, {0, 0})}),
            "");
  EXPECT_EQ(plan.images(), 1U);
  EXPECT_EQ(plan.image(0).live_bytes, 0U);
}

TEST_F(OddTrace, EventsThatMakeNoSenseAreRefused) {
  const Event made = event_of(Kind::malloc, 0, {0, 0}, 10);
  expect_refused({made, made}, "in a slot that is in use, in event 1 of image 0");
  expect_refused({event_of(Kind::free, 0, {0, 0})}, "is not live");
  expect_refused({made, event_of(Kind::free, 0, {0, 1})}, "is not live");
  expect_refused({made, event_of(Kind::free, 0, {0, 0}), event_of(Kind::realloc, 0, {0, 0}, 1)},
                 "is not live");
  expect_refused({event_of(Kind::malloc, 0, {0, 1}, 10)}, "in a slot that is in use");
  expect_refused({event_of(Kind::thread_begin, 1, {0, 0}), event_of(Kind::thread_end, 1, {0, 0}),
                  event_of(Kind::malloc, 1, {0, 0}, 10)},
                 "after it ended");
}

TEST(Load, AForkedImageIsPlannedWithItsParentOnly) {
  Recipe recipe;
  recipe.forks = 1;
  const Folder folder;
  write_synthetic(folder.trace(), recipe);
  plan::Plan plan;
  trace::Problem problem;
  EXPECT_FALSE(plan.load(folder.trace().c_str(), {.image = 1}, problem));
  EXPECT_NE(std::string{problem.text}.find("replay image 0"), std::string::npos);
}

}  // namespace
}  // namespace ts::replay::testing
