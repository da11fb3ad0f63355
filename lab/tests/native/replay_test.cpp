// A plan has exactly the trace's calls, in its order, and waits for what it must and nothing else.
// And it is carried out: under each order all calls are made, blocks keep what is in them, and what
// is live at the end is what was live in the trace. Under ThreadSanitizer this is the stress test
// of turns, epochs and batons.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "replay/image_run.h"
#include "replay/plan.h"
#include "replay/waiting.h"
#include "synthetic.h"
#include "trace/writer.h"

// The traces have requests that no allocator grants; the sanitizers' would end the program.
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace ts {

const char* tool_name() { return "native-test"; }

namespace replay::testing {
namespace {

const std::string path = ::testing::TempDir() + "replay-" + std::to_string(getpid());

// A synthetic trace, loaded as a replay loads it.
class Loaded {
 public:
  explicit Loaded(const Recipe& recipe, const plan::LoadSettings& settings = {},
                  bool keep_calls = false)
      : expected{write_synthetic(path, recipe, keep_calls)} {
    trace::Problem problem;
    is_right = plan.load(path.c_str(), settings, problem);
    EXPECT_TRUE(is_right) << problem.text;
    unlink(path.c_str());
  }

  std::vector<Expected> expected;
  plan::Plan plan;
  bool is_right = false;
};

void expect_sums(const plan::Image& image, const Expected& expected) {
  for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
    EXPECT_EQ(image.totals.calls[kind], expected.totals.calls[kind]) << kind;
    EXPECT_EQ(image.totals.bytes[kind], expected.totals.bytes[kind]) << kind;
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
    if (!plan::is_call(operation.kind)) continue;
    ASSERT_LT(next, expected.calls.size());
    const Event& event = expected.calls[next++];
    ASSERT_EQ(operation.thread, event.thread);
    ASSERT_EQ(operation.kind, event.kind);
    ASSERT_EQ(operation.log2_alignment, event.log2_alignment);
    ASSERT_EQ(operation.size, std::min(event.size, plan::max_bytes));
    ASSERT_EQ(operation.slot, event.slot);
  }
  EXPECT_EQ(next, expected.calls.size());
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
    if (!trace::has_object(operation.kind)) continue;
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
    }
  }
}

TEST(Load, ThreadsThatShareNothingNeverWait) {
  Recipe recipe;
  recipe.everybody_shares = 0;
  recipe.threads_end = 0;  // what is free then may be anybody's
  recipe.threads = 8;
  const Loaded loaded{recipe};
  std::uint64_t calls = 0;
  for (const Operation& operation : operations(loaded.plan.image(0))) {
    if (!plan::is_call(operation.kind)) continue;
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
    if (!plan::is_call(image.operation_table[i].kind)) continue;
    ASSERT_EQ(image.times[i], loaded.expected[0].calls[next++].time_ns);
  }
  EXPECT_EQ(next, loaded.expected[0].calls.size());
}

// Short traces, some of them invalid.
class OddTrace : public ::testing::Test {
 protected:
  // "" or what is said of it.
  std::string load(const std::vector<Event>& events, plan::LoadSettings settings = {}) {
    trace::Writer writer{path};
    const std::uint32_t image = writer.begin_image({});
    for (const Event& event : events) writer.add(image, event);
    writer.finish();
    trace::Problem problem;
    return plan.load(path.c_str(), settings, problem) ? "" : problem.text;
  }
  void expect_refused(const std::vector<Event>& events, const std::string& why) {
    const std::string said = load(events);
    EXPECT_NE(said.find(why), std::string::npos) << said;
    EXPECT_NE(said.find("record it again"), std::string::npos) << said;
  }

  plan::Plan plan;
};

TEST_F(OddTrace, ATraceWithoutEventsIsRefused) {
  EXPECT_NE(load({}).find("contains no events"), std::string::npos);
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
  write_synthetic(path, recipe);
  plan::Plan plan;
  trace::Problem problem;
  EXPECT_FALSE(plan.load(path.c_str(), {.image = 1}, problem));
  EXPECT_NE(std::string{problem.text}.find("replay image 0"), std::string::npos);
}

// --- plans are carried out ---

constexpr Order orders[] = {Order::asap,        Order::paced,   Order::recorded,
                            Order::round_robin, Order::lottery, Order::stride};

Settings settings_of(Order order) {
  Settings settings;
  settings.order = order;
  settings.quantum = 7;
  settings.verify = true;
  settings.touch = Touch::all;
  return settings;
}

class Replay {
 public:
  Replay(const Loaded& loaded, const Settings& the_settings)
      : settings{the_settings},
        context{std::make_unique<ReplayContext>(loaded.plan, settings)},
        run{std::make_unique<ImageRun>(*context, 0, 0)} {
    run->run();
  }

  const ImageResult& result() const { return context->results[0]; }

  Settings settings;
  std::unique_ptr<ReplayContext> context;
  std::unique_ptr<ImageRun> run;
};

void expect_right(const ImageResult& result, const Expected& expected) {
  EXPECT_TRUE(result.has_ended);
  for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
    EXPECT_EQ(result.totals.calls[kind], expected.totals.calls[kind]) << kind;
    EXPECT_EQ(result.totals.bytes[kind], expected.totals.bytes[kind]) << kind;
  }
  EXPECT_EQ(result.live_bytes, static_cast<std::int64_t>(expected.live_bytes));
  EXPECT_EQ(result.null_results, 0U);
  EXPECT_EQ(result.corrupt, 0U);
  EXPECT_EQ(result.misaligned, 0U);
}

TEST(Executor, EachOrderMakesAllCallsAndEndsWithTheSameObjects) {
  for (const std::uint32_t threads : {1U, 3U, 16U}) {
    for (const std::uint64_t window : {0U, 1U, 50U, 1'000U}) {
      Recipe recipe;
      recipe.seed = threads * 10 + window;
      recipe.threads = threads;
      recipe.events = 20'000 / TS_TEST_SLOWNESS;
      recipe.ns_per_event = 10;
      const Loaded loaded{recipe, {.window = window, .with_times = true}};
      for (const Order order : orders) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(order) << ", " << threads
                                          << " threads, window " << window);
        const Replay replay{loaded, settings_of(order)};
        expect_right(replay.result(), loaded.expected[0]);
        if (order == Order::recorded) {
          EXPECT_EQ(replay.result().peak_live_bytes,
                    static_cast<std::int64_t>(loaded.expected[0].peak_live_bytes));
        }
      }
    }
  }
}

// Threads that only hand objects to each other, as fast as they can: each turn is waited for.
TEST(Executor, ObjectsThatChangeHandsWithEveryCall) {
  Recipe recipe;
  recipe.threads = 16;
  recipe.live_objects = 8;
  recipe.threads_end = 0;
  recipe.events = 100'000 / TS_TEST_SLOWNESS;
  for (const std::uint64_t window : {0U, 3U, 1'000U}) {
    const Loaded loaded{recipe, {.window = window}};
    Settings settings = settings_of(Order::asap);
    settings.touch = Touch::page;
    const Replay replay{loaded, settings};
    expect_right(replay.result(), loaded.expected[0]);
  }
}

TEST(Executor, SamplesAreTakenAtTheSameEventsInEachOrder) {
  Recipe recipe;
  recipe.events = 5'000;
  const Loaded loaded{recipe, {.window = 100}};
  std::vector<std::uint64_t> first;
  for (const Order order : orders) {
    if (order == Order::paced) continue;
    Settings settings = settings_of(order);
    settings.samples = 10;
    const Replay replay{loaded, settings};
    std::vector<std::uint64_t> events;
    for (const Sample& sample : replay.context->samples) {
      if (sample.event != 0) events.push_back(sample.event);
    }
    EXPECT_GE(events.size(), 10U);
    EXPECT_LE(events.size(), 11U);
    EXPECT_TRUE(std::is_sorted(events.begin(), events.end()));
    EXPECT_EQ(events.back(), recipe.events);
    const plan::Image& image = loaded.plan.image(0);
    const std::uint64_t at_peak = image.epoch_table[image.peak_epoch].last_event;
    EXPECT_EQ(std::count(events.begin(), events.end(), at_peak), 1);
    if (first.empty()) first = events;
    EXPECT_EQ(events, first) << static_cast<int>(order);
  }
}

TEST(Executor, LiveBytesOfSamplesAreThoseRecordedWhereOneRunsAtATime) {
  Recipe recipe;
  recipe.events = 5'000;
  const Loaded loaded{recipe, {.window = 100}};
  Settings settings = settings_of(Order::recorded);
  settings.samples = 1'000;
  const Replay replay{loaded, settings};
  const plan::Image& image = loaded.plan.image(0);
  std::map<std::uint32_t, std::int64_t> live;  // by slot
  std::int64_t live_bytes = 0;
  std::uint32_t at = 0;
  for (std::uint32_t epoch = 0; epoch < image.epochs; ++epoch) {
    for (; at < image.epoch_table[epoch + 1].first; ++at) {
      const plan::Operation& operation = image.operation_table[at];
      if (!trace::has_object(operation.kind)) continue;
      const auto size = static_cast<std::int64_t>(operation.size);
      live_bytes += size - std::exchange(live[operation.slot], size);
    }
    const Sample& sample = replay.context->samples[epoch];
    EXPECT_EQ(sample.event, image.epoch_table[epoch].last_event);
    EXPECT_EQ(sample.live_bytes, live_bytes);
  }
}

// --- parts: histograms, contents and epochs ---

TEST(Histogram, BucketsHoldTheirValuesAndAreAThirtySecondWideAtMost) {
  std::uint64_t last_upper = 0;
  for (std::size_t i = 0; i < Histogram::bucket(std::uint64_t{1} << 43); ++i) {
    const std::uint64_t upper = Histogram::upper_end(i);
    ASSERT_EQ(Histogram::bucket(upper), i);
    ASSERT_EQ(Histogram::bucket(upper + 1), i + 1);
    if (i > 0) {
      ASSERT_LE(upper - last_upper, last_upper / 32 + 1);
    }
    last_upper = upper;
  }
  EXPECT_EQ(Histogram::bucket(~std::uint64_t{0}), Histogram::bucket(std::uint64_t{1} << 45));
}

TEST(Content, WhatWasWrittenIsFoundAndWhatWasNotIsNot) {
  for (const Touch touch : {Touch::none, Touch::first, Touch::page, Touch::all}) {
    const Content content{touch, true};
    for (const std::uint64_t size : {0U, 1U, 7U, 15U, 16U, 17U, 31U, 32U, 33U, 5'000U, 20'000U}) {
      std::vector<unsigned char> block(size + 1, 0xaa);
      content.write(block.data(), 0, size, 3);
      EXPECT_EQ(content.check(block.data(), size, size, 3), intact) << size;
      EXPECT_EQ(block[size], 0xaa) << "behind the end";
      if (size < 8) continue;  // few bytes may be alike by chance
      EXPECT_NE(content.check(block.data(), size, size, 4), intact) << size;
      for (const std::uint64_t wrong : {std::uint64_t{0}, size - 1}) {
        block[wrong] ^= 1;
        EXPECT_EQ(content.check(block.data(), size, size, 3), wrong) << size;
        block[wrong] ^= 1;
      }
    }
  }
}

TEST(Content, EachPageOfABlockIsTouched) {
  const Content content{Touch::page, false};
  constexpr std::size_t page = 4'096;
  std::vector<unsigned char> memory(8 * page, 0xaa);
  const auto aligned = (reinterpret_cast<std::uintptr_t>(memory.data()) + page) / page * page;
  auto* const block = reinterpret_cast<unsigned char*>(aligned) + 100;
  content.write(block, 0, 3 * page, 1);
  EXPECT_NE(block[0], 0xaa);
  for (std::size_t i = 1; i <= 3; ++i) EXPECT_NE(block[i * page - 100], 0xaa) << i;
  std::fill(memory.begin(), memory.end(), 0xaa);
  content.write(block, 2 * page, 3 * page, 1);  // the first two are there
  EXPECT_EQ(block[0], 0xaa);
  EXPECT_EQ(block[page - 100], 0xaa);
  EXPECT_NE(block[3 * page - 100], 0xaa);
}

// Threads write what others read two epochs later, without any other order.
TEST(Epochs, NobodyEntersBeforeThoseBeforeAreDone) {
  constexpr std::uint32_t threads = 6;
  constexpr std::uint32_t epochs = 3'000 / TS_TEST_SLOWNESS;
  std::vector<plan::Epoch> planned(epochs);
  for (std::uint32_t e = 0; e < epochs; ++e) {
    planned[e].threads = threads;
    planned[e].after = e > 0 ? e - 1 : 0;
  }
  Epochs progress{planned.data(), epochs};
  std::vector<std::vector<std::uint32_t>> written(epochs, std::vector<std::uint32_t>(threads));
  std::atomic<std::uint32_t> done{0};
  std::vector<std::thread> all;
  for (std::uint32_t t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      for (std::uint32_t e = 0; e < epochs; ++e) {
        progress.wait_to_enter(e, e % 2 == 0 ? 0 : 50);
        written[e][t] = e + 1;
        for (std::uint32_t other = 0; other < threads && e >= 2; ++other) {
          EXPECT_EQ(written[e - 2][other], e - 1);
        }
        progress.leave(e, [&](std::uint32_t epoch) { EXPECT_EQ(done.fetch_add(1), epoch); });
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  EXPECT_EQ(done.load(), epochs);
}

}  // namespace
}  // namespace replay::testing
}  // namespace ts
