// Schedules: the worked cases, exact fairness, births, waits and ends; which thread the lottery
// draws how often; and lists of tickets.
//
// All seeds are fixed, so these tests are the same in every run. The bound of the lottery is
// Hoeffding's: of N independent drawings with chance p, the winners differ from N * p by more than
// sqrt(N * ln(2 / e) / 2) with a chance of less than e. With e = 10^-9 and fewer than 1,000 such
// comparisons, a fair lottery fails with a chance of less than one in a million.
#include "replay/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace ts::replay::testing {
namespace {

using Numbers = std::vector<std::uint32_t>;

constexpr Order disciplines[] = {Order::round_robin, Order::lottery, Order::stride};

// A schedule with its tickets; as many threads as there are tickets are there from the beginning.
class Hall {
 public:
  Hall(Order discipline, const Numbers& listed, std::uint64_t seed = 1) {
    std::string text;
    for (const std::uint32_t number : listed) text += std::to_string(number) + ",";
    if (!text.empty()) text.pop_back();
    EXPECT_EQ(text.empty() ? nullptr : tickets->parse(text.c_str()), nullptr);
    schedule = std::make_unique<Schedule>(discipline, seed, *tickets, 64);
    for (std::uint32_t thread = 0; thread < listed.size(); ++thread) schedule->add(thread);
  }

  std::uint32_t tick() {
    return schedule->next([](std::uint32_t) { return true; });
  }

  Numbers run(std::size_t ticks) {
    Numbers order;
    for (std::size_t i = 0; i < ticks; ++i) order.push_back(tick());
    return order;
  }

  std::uint64_t ticks_of(std::uint32_t thread) const { return schedule->share(thread).ticks; }

  std::unique_ptr<Tickets> tickets = std::make_unique<Tickets>();
  std::unique_ptr<Schedule> schedule;
};

TEST(WorkedCases, TicketsThreeTwoOneAdvanceEveryMeterByExactlyOneInSixTicks) {
  Hall hall{Order::stride, {3, 2, 1}};
  for (std::uint64_t turns = 1; turns <= 1000; ++turns) {
    ASSERT_EQ(hall.run(6), (Numbers{0, 1, 2, 0, 1, 0}));
    for (std::uint32_t thread = 0; thread < 3; ++thread) {
      ASSERT_EQ(hall.schedule->meter(thread), turns * hall.tickets->tick());
    }
  }
}

// n * S - T * t lies between -(n - 1) * t and S - t, for each thread after each tick.
void expect_fair(const Numbers& tickets, std::size_t ticks) {
  Hall hall{Order::stride, tickets};
  const auto all = std::accumulate(tickets.begin(), tickets.end(), std::int64_t{0});
  const auto others = static_cast<std::int64_t>(tickets.size()) - 1;
  for (std::size_t tick = 1; tick <= ticks; ++tick) {
    hall.tick();
    for (std::uint32_t thread = 0; thread < tickets.size(); ++thread) {
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
    Numbers tickets;
    for (std::size_t threads = 1 + random() % 12; threads > 0; --threads) {
      tickets.push_back(1 + static_cast<std::uint32_t>(random() % 42));
    }
    expect_fair(tickets, 500);
  }
}

// The order of whole rationals, compared by multiplication over the cross.
TEST(StrideTest, IsExactForPrimesUpToAMillion) {
  const Numbers tickets{999'983, 999'979, 999'961, 4, 2};
  Hall hall{Order::stride, tickets};
  std::vector<std::uint64_t> had(tickets.size(), 0);
  for (int tick = 0; tick < 300'000 / TS_TEST_SLOWNESS; ++tick) {
    std::size_t least = 0;
    for (std::size_t i = 1; i < tickets.size(); ++i) {
      if (had[i] * tickets[least] < had[least] * tickets[i]) least = i;
    }
    ASSERT_EQ(hall.tick(), least) << "tick " << tick;
    ++had[least];
  }
  for (std::uint32_t i = 0; i < tickets.size(); ++i) {
    EXPECT_EQ(hall.schedule->meter(i), hall.tickets->tick() * had[i] / tickets[i]);
  }
}

// Births, waits and ends at random, against meters that are counted in parts of the least common
// multiple of 2^32 and all tickets up to 12.
TEST(StrideTest, AgreesWithASimpleModelThroughBirthsWaitsAndEnds) {
  constexpr std::uint64_t whole = 27'720 * (std::uint64_t{1} << 32);
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    std::mt19937_64 random{seed};
    Tickets tickets;
    ASSERT_EQ(tickets.parse("1,2,3,4,5,6,7,8,9,10,11,12"), nullptr);
    Schedule schedule{Order::stride, 1, tickets, 16};
    std::map<std::uint32_t, std::uint64_t> meters;
    const auto least = [&](auto&& counts) {
      std::optional<std::uint64_t> found;
      for (const auto& [thread, meter] : meters) {
        if (counts(thread)) found = std::min(found.value_or(meter), meter);
      }
      return found;
    };
    for (int step = 0; step < 3000 / TS_TEST_SLOWNESS; ++step) {
      const auto thread = static_cast<std::uint32_t>(random() % 16);
      if (random() % 8 == 0) {
        if (meters.erase(thread) == 1) {
          schedule.remove(thread);
        } else {
          meters[thread] = least([](std::uint32_t) { return true; }).value_or(0);
          schedule.add(thread);
        }
      }
      const std::uint64_t waiting = random() & random();
      const auto can_run = [&](std::uint32_t asked) { return (waiting >> asked & 1) == 0; };
      std::uint32_t expected = no_thread;
      if (const auto lowest = least(can_run)) {
        std::uint64_t runnable = 0;
        for (const auto& [number, meter] : meters) {
          runnable += can_run(number) ? tickets.of(number) : 0;
        }
        for (auto& [number, meter] : meters) {
          if (!can_run(number)) {
            meter += whole / runnable;
          } else if (meter == *lowest && expected == no_thread) {
            expected = number;
          }
        }
        meters[expected] += whole / tickets.of(expected);
      }
      ASSERT_EQ(schedule.next(can_run), expected) << "seed " << seed << ", step " << step;
      for (const auto& [number, meter] : meters) ASSERT_EQ(schedule.meter(number), meter);
    }
  }
}

TEST(ScheduleTest, GrantsNothingWhenNobodyCanRun) {
  for (const Order discipline : disciplines) {
    EXPECT_EQ((Hall{discipline, {}}.tick()), no_thread);
    Hall hall{discipline, {2, 1}};
    EXPECT_EQ(hall.schedule->next([](std::uint32_t) { return false; }), no_thread);
    EXPECT_EQ(hall.schedule->ticks(), 0U);
    EXPECT_EQ(hall.schedule->share(0).skipped, 0U);
    EXPECT_EQ(hall.schedule->meter(0), 0U);
    EXPECT_NE(hall.tick(), no_thread);
  }
}

TEST(ScheduleTest, OnlyThoseWhoCanRunRun) {
  std::mt19937_64 random{3};
  for (const Order discipline : disciplines) {
    Hall hall{discipline, {5, 4, 3, 2, 1}};
    std::vector<std::uint64_t> skipped(5, 0);
    for (int tick = 0; tick < 2000; ++tick) {
      const std::uint64_t runnable = 1 + random() % 31;
      const std::uint32_t ran =
          hall.schedule->next([&](std::uint32_t thread) { return (runnable >> thread & 1) != 0; });
      ASSERT_NE(runnable >> ran & 1, 0U);
      for (std::size_t i = 0; i < 5; ++i) skipped[i] += (runnable >> i & 1) == 0 ? 1 : 0;
    }
    std::uint64_t ticks = 0;
    double owed = 0;
    for (std::uint32_t i = 0; i < 5; ++i) {
      const Share& share = hall.schedule->share(i);
      EXPECT_EQ(share.skipped, skipped[i]);
      ticks += share.ticks;
      owed += share.owed;
    }
    EXPECT_EQ(ticks, 2000U);
    EXPECT_NEAR(owed, 2000, 1e-6);
  }
}

TEST(ScheduleTest, OwesAThreadItsShareOfTheTicketsThatCouldRun) {
  Hall hall{Order::lottery, {1, 2, 5}};
  hall.run(80);
  for (int tick = 0; tick < 30; ++tick) {
    hall.schedule->next([](std::uint32_t thread) { return thread < 2; });
  }
  const double owed[] = {10 + 10, 20 + 20, 50};
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_NEAR(hall.schedule->share(i).owed, owed[i], 1e-9);
}

TEST(RoundRobinTest, TakesThreadsInTurnAndPassesOverThoseThatCannotRunOrHaveEnded) {
  Hall hall{Order::round_robin, {1, 9, 1, 1}};
  EXPECT_EQ(hall.run(6), (Numbers{0, 1, 2, 3, 0, 1}));
  const auto but_two = [](std::uint32_t thread) { return thread != 2; };
  EXPECT_EQ(hall.schedule->next(but_two), 3U);
  EXPECT_EQ(hall.schedule->next(but_two), 0U);
  EXPECT_EQ(hall.run(2), (Numbers{1, 2})) << "in its turn again";
  hall.schedule->remove(2);
  hall.schedule->add(4);
  EXPECT_EQ(hall.run(3), (Numbers{3, 4, 0}));
}

// --- the lottery ---

void expect_shares(const std::vector<std::uint64_t>& wins, const Numbers& tickets) {
  const auto drawings = static_cast<double>(std::accumulate(wins.begin(), wins.end(), 0ULL));
  const auto all = static_cast<double>(std::accumulate(tickets.begin(), tickets.end(), 0ULL));
  const double bound = std::sqrt(drawings * std::log(2 / 1e-9) / 2);
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(wins[i]), drawings * tickets[i] / all, bound) << i;
  }
}

TEST(LotteryTest, WinsAreInProportionToTicketsOfThoseWhoCanRun) {
  for (const Numbers& tickets : {Numbers{3, 2, 1}, Numbers(21, 1), Numbers{1, 1000},
                                 Numbers{999'983, 499'979, 2, 999'979}}) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      Hall hall{Order::lottery, tickets, seed};
      std::vector<std::uint64_t> wins(tickets.size(), 0);
      for (int tick = 0; tick < 20'000 / TS_TEST_SLOWNESS; ++tick) ++wins[hall.tick()];
      expect_shares(wins, tickets);
    }
  }
  Hall hall{Order::lottery, {4, 100, 2, 1}};
  std::vector<std::uint64_t> wins(4, 0);
  for (int tick = 0; tick < 20'000 / TS_TEST_SLOWNESS; ++tick) {
    ++wins[hall.schedule->next([](std::uint32_t thread) { return thread != 1; })];
  }
  expect_shares(wins, {4, 0, 2, 1});
}

// A bound that is no divisor of 2^64 by far: the remainder alone would draw the first third twice
// as often as the others.
TEST(RandomTest, IsSplitMix64AndBelowDrawsEachNumberEquallyOften) {
  Random random{1234567};  // the authors' own numbers
  for (const std::uint64_t expected :
       {6457827717110365317U, 3203168211198807973U, 9817491932198370423U}) {
    EXPECT_EQ(random.next(), expected);
  }
  constexpr std::uint64_t third = std::uint64_t{1} << 62;
  std::vector<std::uint64_t> drawn(3, 0);
  for (int i = 0; i < 20'000; ++i) ++drawn[random.below(3 * third) / third];
  expect_shares(drawn, {1, 1, 1});
  EXPECT_EQ(random.below(1), 0U);
}

// --- tickets ---

TEST(TicketsTest, AreEqualUnlessGivenAndBeginAgainWhereTheListEnds) {
  Tickets tickets;
  EXPECT_EQ(tickets.of(1'000'000), 1U);
  ASSERT_EQ(tickets.parse("3,2,1"), nullptr);
  for (std::uint32_t thread = 0; thread < 12; ++thread) {
    EXPECT_EQ(tickets.of(thread), 3 - thread % 3);
  }
  EXPECT_EQ(tickets.tick(), Meter{6} << 32);
  std::string up_to_42 = "1";
  for (int number = 2; number <= 42; ++number) up_to_42 += "," + std::to_string(number);
  for (const std::string& list : {up_to_42, std::string{"999983,999979,999961"}}) {
    EXPECT_EQ(tickets.parse(list.c_str()), nullptr);
  }
}

TEST(TicketsTest, ListsThatAreWrongHaveARemedy) {
  std::string longest = "1000000000";
  for (std::size_t i = 1; i < Tickets::max_listed; ++i) longest += ",1";
  const auto tickets = std::make_unique<Tickets>();
  EXPECT_EQ(tickets->parse(longest.c_str()), nullptr);
  const std::map<std::string, std::vector<std::string>> wrong = {
      {"whole numbers from 1 to 1000000000, separated by commas, as in --tickets 3,2,1",
       {"", ",", "3,", ",3", "3,,2", "-1", "+1", "1.5", "3, 2", " 3", "3 ", "3;2", "three", "0x10",
        "1e3", "\xd9\xa3"}},
      {"give each at least 1", {"0", "3,0,1", "00"}},
      {"divide all of them",
       {"1000000001", "18446744073709551617", "4294967296", std::string(44, '9')}},
      {"give a shorter one", {longest + ",1"}},
      {"share factors, or none above 42",
       {"999983,999979,999961,999959", "999983,999979,999961,32"}},
  };
  for (const auto& [remedy, lists] : wrong) {
    for (const std::string& list : lists) {
      const char* const said = tickets->parse(list.c_str());
      ASSERT_NE(said, nullptr) << list;
      EXPECT_NE(std::string{said}.find(remedy), std::string::npos) << list << ": " << said;
    }
  }
}

}  // namespace
}  // namespace ts::replay::testing
