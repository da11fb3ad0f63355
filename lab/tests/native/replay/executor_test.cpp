// Plans are carried out: under each order all calls are made, blocks keep what is in them, and what
// is live at the end is what was live in the trace. Under ThreadSanitizer this is the stress test
// of turns, epochs and batons.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "native/replay/loaded.h"
#include "replay/image_run.h"

// The traces have requests that no allocator grants; the sanitizers' would end the program.
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

namespace ts {

const char* tool_name() { return "replay-test"; }

namespace replay::testing {
namespace {

struct NamedSettings {
  const char* name;
  Order order;
  Discipline discipline;
};
constexpr NamedSettings orders[] = {
    {"asap", Order::asap, Discipline::round_robin},
    {"paced", Order::paced, Discipline::round_robin},
    {"recorded", Order::recorded, Discipline::round_robin},
    {"round robin", Order::scheduled, Discipline::round_robin},
    {"lottery", Order::scheduled, Discipline::lottery},
    {"stride", Order::scheduled, Discipline::stride},
};

Settings settings_of(const NamedSettings& named) {
  Settings settings;
  settings.order = named.order;
  settings.discipline = named.discipline;
  settings.quantum = 7;
  settings.verify = true;
  settings.touch = Touch::all;
  return settings;
}

class Replay {
 public:
  Replay(const Loaded& loaded, const Settings& the_settings)
      : settings{the_settings},
        context{std::make_unique<ReplayContext>(loaded.plan, settings, tickets, clock)},
        run{std::make_unique<ImageRun>(*context, 0, 0)} {
    run->run();
  }

  const ImageResult& result() const { return context->results[0]; }

  Settings settings;
  Tickets tickets;
  Clock clock;
  std::unique_ptr<ReplayContext> context;
  std::unique_ptr<ImageRun> run;
};

void expect_right(const ImageResult& result, const Expected& expected) {
  EXPECT_TRUE(result.has_ended);
  for (std::size_t kind = 0; kind < plan::call_kinds; ++kind) {
    EXPECT_EQ(result.totals.calls[kind], expected.totals.calls[kind]) << plan::kind_names[kind];
    EXPECT_EQ(result.totals.bytes[kind], expected.totals.bytes[kind]) << plan::kind_names[kind];
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
      for (const NamedSettings& named : orders) {
        SCOPED_TRACE(::testing::Message()
                     << named.name << ", " << threads << " threads, window " << window);
        const Replay replay{loaded, settings_of(named)};
        expect_right(replay.result(), loaded.expected[0]);
        if (named.order == Order::recorded) {
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
  recipe.threads_end = false;
  recipe.events = 100'000 / TS_TEST_SLOWNESS;
  for (const std::uint64_t window : {0U, 3U, 1'000U}) {
    const Loaded loaded{recipe, {.window = window}};
    Settings settings = settings_of(orders[0]);
    settings.touch = Touch::page;
    const Replay replay{loaded, settings};
    expect_right(replay.result(), loaded.expected[0]);
  }
}

// Threads that come and go all the time, which are started and joined by any other.
TEST(Executor, ThreadsThatLiveShortly) {
  Recipe recipe;
  recipe.threads = 12;
  recipe.events = 60'000 / TS_TEST_SLOWNESS;
  recipe.live_objects = 50;
  const Loaded loaded{recipe, {.window = 20}};
  ASSERT_GT(loaded.plan.image(0).ends, 20U / TS_TEST_SLOWNESS);
  for (const NamedSettings& named : orders) {
    if (named.order == Order::paced) continue;
    SCOPED_TRACE(named.name);
    const Replay replay{loaded, settings_of(named)};
    expect_right(replay.result(), loaded.expected[0]);
  }
}

TEST(Executor, SamplesAreTakenAtTheSameEventsInEachOrder) {
  Recipe recipe;
  recipe.events = 5'000;
  const Loaded loaded{recipe, {.window = 100}};
  std::vector<std::uint64_t> first;
  for (const NamedSettings& named : orders) {
    if (named.order == Order::paced) continue;
    Settings settings = settings_of(named);
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
    if (first.empty()) first = events;
    EXPECT_EQ(events, first) << named.name;
  }
}

TEST(Executor, LiveBytesOfSamplesAreThoseRecordedWhereOneRunsAtATime) {
  Recipe recipe;
  recipe.events = 5'000;
  const Loaded loaded{recipe, {.window = 100}};
  Settings settings = settings_of(orders[2]);
  settings.samples = 1'000;
  const Replay replay{loaded, settings};
  const plan::Image& image = loaded.plan.image(0);
  std::map<std::uint32_t, std::int64_t> live;  // by slot
  std::int64_t live_bytes = 0;
  std::uint32_t at = 0;
  for (std::uint32_t epoch = 0; epoch < image.epochs; ++epoch) {
    for (; at < image.epoch_table[epoch + 1].first; ++at) {
      const plan::Operation& operation = image.operation_table[at];
      if (operation.kind > static_cast<std::uint64_t>(plan::Kind::free)) continue;
      const auto size = static_cast<std::int64_t>(operation.size);
      live_bytes += size - std::exchange(live[operation.slot], size);
    }
    const Sample& sample = replay.context->samples[epoch];
    EXPECT_EQ(sample.event, image.epoch_table[epoch].last_event);
    EXPECT_EQ(sample.live_bytes, live_bytes);
  }
}

}  // namespace
}  // namespace replay::testing
}  // namespace ts
