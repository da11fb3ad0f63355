// What all schedules have in common, round robin, and stride: the worked cases, exact fairness,
// births, waits and ends.
#include "replay/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "native/schedule/hall.h"

namespace ts::replay::testing {
namespace {

using Tickets = std::vector<std::uint32_t>;

constexpr Discipline disciplines[] = {Discipline::round_robin, Discipline::lottery,
                                      Discipline::stride};
constexpr auto everybody = [](std::uint32_t) { return true; };

// 21 threads of five owners: four have five threads each, the last one has one.
std::uint64_t ticks_of_owner(Hall& hall, std::size_t owner) {
  std::uint64_t ticks = 0;
  for (std::size_t thread = 5 * owner; thread < std::min<std::size_t>(5 * owner + 5, 21);
       ++thread) {
    ticks += hall.ticks_of(thread);
  }
  return ticks;
}

TEST(WorkedCases, AnOwnerOfMoreThreadsGetsMoreWithEqualTickets) {
  for (const Discipline discipline : {Discipline::round_robin, Discipline::stride}) {
    Hall hall{discipline, Tickets(21, 1)};
    for (std::uint64_t turns = 1; turns <= 100; ++turns) {
      hall.run(21);
      for (std::size_t owner = 0; owner < 4; ++owner) {
        ASSERT_EQ(ticks_of_owner(hall, owner), 5 * turns);  // of 21
      }
      ASSERT_EQ(ticks_of_owner(hall, 4), turns);
    }
  }
}

TEST(WorkedCases, TicketsThreeTwoOneAdvanceEveryMeterByExactlyOneInSixTicks) {
  Hall hall{Discipline::stride, {3, 2, 1}};
  for (std::uint64_t turns = 1; turns <= 1000; ++turns) {
    ASSERT_EQ(hall.run(6), (std::vector<std::uint32_t>{0, 1, 2, 0, 1, 0}));
    for (std::size_t thread = 0; thread < 3; ++thread) {
      ASSERT_EQ(hall.schedule().client(thread).meter, turns * hall.denominator().whole());
    }
  }
}

// n * S - T * t lies between -(n - 1) * t and S - t, for each thread after each tick.
void expect_fair(const Tickets& tickets, std::size_t ticks) {
  Hall hall{Discipline::stride, tickets};
  const auto all = std::accumulate(tickets.begin(), tickets.end(), std::int64_t{0});
  const auto others = static_cast<std::int64_t>(tickets.size()) - 1;
  for (std::size_t tick = 1; tick <= ticks; ++tick) {
    hall.tick();
    for (std::size_t thread = 0; thread < tickets.size(); ++thread) {
      const auto own = static_cast<std::int64_t>(tickets[thread]);
      const auto had = static_cast<std::int64_t>(hall.ticks_of(thread));
      const std::int64_t ahead = had * all - static_cast<std::int64_t>(tick) * own;
      ASSERT_LE(ahead, all - own) << "thread " << thread << ", tick " << tick;
      ASSERT_GE(ahead, -others * own) << "thread " << thread << ", tick " << tick;
    }
  }
}

TEST(StrideTest, SharesAreWithinTheBound) {
  expect_fair({1}, 100);
  expect_fair({1, 1}, 1000);
  expect_fair({3, 2, 1}, 1000);
  expect_fair({1, 1, 1, 1, 100}, 5000);
  expect_fair({999'983, 2, 3, 5, 7, 11, 499'979, 1}, 20'000);
  std::mt19937_64 random{7};
  for (int round = 0; round < 50; ++round) {
    Tickets tickets;
    for (std::size_t threads = 1 + random() % 12; threads > 0; --threads) {
      tickets.push_back(1 + static_cast<std::uint32_t>(random() % 42));
    }
    expect_fair(tickets, 500);
  }
}

// The order of whole rationals, compared by multiplication over the cross.
TEST(StrideTest, IsExactForPrimesUpToAMillion) {
  const Tickets tickets{999'983, 999'979, 999'961, 4, 2};
  Hall hall{Discipline::stride, tickets};
  std::vector<std::uint64_t> had(tickets.size(), 0);
  for (int tick = 0; tick < 300'000 / TS_TEST_SLOWNESS; ++tick) {
    std::size_t least = 0;
    for (std::size_t i = 1; i < tickets.size(); ++i) {
      if (had[i] * tickets[least] < had[least] * tickets[i]) least = i;
    }
    ASSERT_EQ(hall.tick(), least) << "tick " << tick;
    ++had[least];
  }
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    const Meter expected = meter_after(had[i], tickets[i], hall.denominator());
    EXPECT_EQ(hall.schedule().client(i).meter, expected);
  }
}

// Where meters stand does not matter, only how they differ: 10^9 ticks for each ticket, and more than
// there can be.
TEST(StrideTest, GoesOnAsItBeganAfter1000000000Ticks) {
  const Tickets tickets{3, 999'983, 7, 1, 1'000'000};
  Hall fresh{Discipline::stride, tickets};
  const std::vector<std::uint32_t> expected = fresh.run(5000);
  for (const std::uint64_t had : {std::uint64_t{1'000'000'000}, std::uint64_t{1} << 33}) {
    Hall old{Discipline::stride, tickets};
    for (Schedule::Client& client : old.clients()) client.meter = had * old.denominator().whole();
    EXPECT_EQ(old.run(5000), expected) << had;
  }
}

TEST(ScheduleTest, IsTheSameInEveryRun) {
  for (const Discipline discipline : disciplines) {
    Hall one{discipline, {5, 3, 1, 1}, 42};
    Hall other{discipline, {5, 3, 1, 1}, 42};
    EXPECT_EQ(one.run(1000), other.run(1000));
  }
}

TEST(ScheduleTest, GrantsNothingWhenNobodyCanRun) {
  for (const Discipline discipline : disciplines) {
    Hall empty{discipline, {}};
    EXPECT_EQ(empty.tick(), no_thread);
    Hall hall{discipline, {2, 1}};
    EXPECT_EQ(hall.schedule().next([](std::uint32_t) { return false; }), no_thread);
    EXPECT_EQ(hall.schedule().ticks(), 0U);
    EXPECT_EQ(hall.schedule().client(0).share.skipped, 0U);
    EXPECT_EQ(hall.schedule().meter(0), 0);
    EXPECT_NE(hall.tick(), no_thread);
  }
}

TEST(ScheduleTest, AsksEachThreadOnceInOrderOfNumber) {
  Hall hall{Discipline::lottery, {1, 1, 1}};
  ASSERT_FALSE(hall.schedule().remove(1).thread == no_thread);
  ASSERT_TRUE(hall.schedule().add(7, 1));
  ASSERT_TRUE(hall.schedule().add(5, 1));
  std::vector<std::uint32_t> asked;
  hall.schedule().next([&](std::uint32_t thread) {
    asked.push_back(thread);
    return true;
  });
  EXPECT_EQ(asked, (std::vector<std::uint32_t>{0, 2, 5, 7}));
}

TEST(ScheduleTest, RefusesBadTicketsAndThreads) {
  Hall hall{Discipline::stride, {3, 2}, 1, 3};
  EXPECT_FALSE(hall.schedule().add(2, 0));
  EXPECT_FALSE(hall.schedule().add(2, 5)) << "not in the denominator";
  EXPECT_FALSE(hall.schedule().add(1, 2)) << "there already";
  EXPECT_EQ(hall.schedule().threads(), 2U);
  EXPECT_TRUE(hall.schedule().add(2, 6));
  EXPECT_FALSE(hall.schedule().add(3, 1)) << "no client";
  EXPECT_EQ(hall.schedule().remove(3).thread, no_thread);
  EXPECT_EQ(hall.schedule().remove(0).thread, 0U);
  EXPECT_TRUE(hall.schedule().add(3, 1));
}

TEST(ScheduleTest, OnlyThoseWhoCanRunRun) {
  std::mt19937_64 random{3};
  for (const Discipline discipline : disciplines) {
    Hall hall{discipline, {5, 4, 3, 2, 1}};
    std::vector<std::uint64_t> skipped(5, 0);
    for (int tick = 0; tick < 2000; ++tick) {
      const std::uint64_t runnable = 1 + random() % 31;
      const std::uint32_t ran =
          hall.schedule().next([&](std::uint32_t thread) { return (runnable >> thread & 1) != 0; });
      ASSERT_NE(runnable >> ran & 1, 0U);
      for (std::size_t i = 0; i < 5; ++i) skipped[i] += (runnable >> i & 1) == 0 ? 1 : 0;
    }
    std::uint64_t ticks = 0;
    double owed = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      const Share& share = hall.schedule().client(i).share;
      EXPECT_EQ(share.skipped, skipped[i]);
      ticks += share.ticks;
      owed += share.owed;
    }
    EXPECT_EQ(ticks, 2000U);
    EXPECT_NEAR(owed, 2000, 1e-6);
  }
}

TEST(ScheduleTest, OwesAThreadItsShareOfTheTicketsThatCouldRun) {
  Hall hall{Discipline::lottery, {1, 2, 5}};
  hall.run(80);
  for (int tick = 0; tick < 30; ++tick) {
    hall.schedule().next([](std::uint32_t thread) { return thread < 2; });
  }
  EXPECT_NEAR(hall.schedule().client(0).share.owed, 10 + 10, 1e-9);
  EXPECT_NEAR(hall.schedule().client(1).share.owed, 20 + 20, 1e-9);
  EXPECT_NEAR(hall.schedule().remove(2).owed, 50, 1e-9);
}

TEST(RoundRobinTest, TakesThreadsInTurnAndPassesOverThoseThatCannotRun) {
  Hall hall{Discipline::round_robin, {1, 9, 1, 1}};
  EXPECT_EQ(hall.run(6), (std::vector<std::uint32_t>{0, 1, 2, 3, 0, 1}));
  const auto but_two = [](std::uint32_t thread) { return thread != 2; };
  EXPECT_EQ(hall.schedule().next(but_two), 3U);
  EXPECT_EQ(hall.schedule().next(but_two), 0U);
  EXPECT_EQ(hall.tick(), 1U);
  EXPECT_EQ(hall.tick(), 2U) << "in its turn again";
}

TEST(RoundRobinTest, GoesOnBehindAThreadThatHasEnded) {
  Hall hall{Discipline::round_robin, {1, 1, 1}};
  hall.run(2);
  EXPECT_EQ(hall.schedule().remove(1).ticks, 1U);
  EXPECT_EQ(hall.tick(), 2U);
  ASSERT_TRUE(hall.schedule().add(3, 1));
  EXPECT_EQ(hall.tick(), 3U);
  EXPECT_EQ(hall.tick(), 0U);
}

// Births, waits and ends at random, against meters that are counted in parts of the least common
// multiple of 2^32 and all tickets up to 12.
TEST(StrideTest, AgreesWithASimpleModelThroughBirthsWaitsAndEnds) {
  constexpr std::uint64_t whole = 27'720 * (std::uint64_t{1} << 32);
  struct Model {
    std::uint32_t tickets;
    std::uint64_t meter;
  };
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random{seed};
    Hall hall{Discipline::stride, {}, 1, 16};
    for (std::uint32_t tickets = 1; tickets <= 12; ++tickets) {
      ASSERT_TRUE(hall.denominator().include(tickets));
    }
    std::map<std::uint32_t, Model> model;
    const auto least = [&](auto&& counts) {
      std::optional<std::uint64_t> found;
      for (const auto& [thread, own] : model) {
        if (counts(thread)) found = std::min(found.value_or(own.meter), own.meter);
      }
      return found;
    };
    for (int step = 0; step < 3000 / TS_TEST_SLOWNESS; ++step) {
      const auto thread = static_cast<std::uint32_t>(random() % 16);
      if (random() % 8 == 0) {
        if (model.erase(thread) == 1) {
          ASSERT_EQ(hall.schedule().remove(thread).thread, thread);
        } else {
          const auto tickets = 1 + static_cast<std::uint32_t>(random() % 12);
          const std::uint64_t meter = least(everybody).value_or(0);
          model[thread] = {tickets, meter};
          ASSERT_TRUE(hall.schedule().add(thread, tickets));
        }
      }
      const std::uint64_t waiting = random() & random();
      const auto can_run = [&](std::uint32_t asked) { return (waiting >> asked & 1) == 0; };
      std::uint32_t expected = no_thread;
      if (const auto meter = least(can_run)) {
        std::uint64_t runnable = 0;
        for (const auto& [number, own] : model) runnable += can_run(number) ? own.tickets : 0;
        for (auto& [number, own] : model) {
          if (!can_run(number)) {
            own.meter += whole / runnable;
          } else if (own.meter == *meter && expected == no_thread) {
            expected = number;
          }
        }
        model[expected].meter += whole / model[expected].tickets;
      }
      ASSERT_EQ(hall.schedule().next(can_run), expected) << "seed " << seed << ", step " << step;
      std::size_t client = 0;
      for (const auto& [number, own] : model) {
        ASSERT_EQ(hall.schedule().client(client).share.thread, number);
        ASSERT_EQ(hall.schedule().client(client).meter, own.meter);
        ++client;
      }
    }
  }
}

}  // namespace
}  // namespace ts::replay::testing
