// The lottery: which thread it draws how often. Its seeds are fixed, so these tests are the same in
// every run.
//
// The bound is Hoeffding's: of N independent drawings with chance p, the winners differ from N * p
// by more than sqrt(N * ln(2 / e) / 2) with a chance of less than e. With e = 10^-9 and fewer than
// 1,000 such comparisons, a fair lottery fails with a chance of less than one in a million.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "native/schedule/hall.h"
#include "replay/schedule/random.h"

namespace ts::replay::testing {
namespace {

using Tickets = std::vector<std::uint32_t>;

double hoeffding(double drawings) { return std::sqrt(drawings * std::log(2 / 1e-9) / 2); }

void expect_shares(const std::vector<std::uint64_t>& wins, const Tickets& tickets) {
  const auto drawings = static_cast<double>(std::accumulate(wins.begin(), wins.end(), 0ULL));
  const auto all = static_cast<double>(std::accumulate(tickets.begin(), tickets.end(), 0ULL));
  for (std::size_t i = 0; i < tickets.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(wins[i]), drawings * tickets[i] / all, hoeffding(drawings))
        << i;
  }
}

TEST(LotteryTest, WinsAreInProportionToTickets) {
  for (const Tickets& tickets : {Tickets{3, 2, 1}, Tickets(21, 1), Tickets{1, 1000},
                                 Tickets{999'983, 499'979, 2, 999'979}}) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      Hall hall{Discipline::lottery, tickets, seed};
      std::vector<std::uint64_t> wins(tickets.size(), 0);
      for (int tick = 0; tick < 20'000 / TS_TEST_SLOWNESS; ++tick) ++wins[hall.tick()];
      expect_shares(wins, tickets);
    }
  }
}

// Pearson's chi-squared of four degrees of freedom is above 33.4 with a chance of one in a million.
TEST(LotteryTest, WinsPassATestOfChiSquared) {
  const Tickets tickets{5, 4, 3, 2, 1};
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Hall hall{Discipline::lottery, tickets, seed};
    hall.run(15'000);
    double chi_squared = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      const double expected = 1000.0 * tickets[i];
      const double excess = static_cast<double>(hall.ticks_of(i)) - expected;
      chi_squared += excess * excess / expected;
    }
    EXPECT_LT(chi_squared, 33.4) << "seed " << seed;
    EXPECT_GT(chi_squared, 0.001) << "suspiciously even: seed " << seed;
  }
}

// As if tickets that cannot run had never been sold.
TEST(LotteryTest, DrawsAmongThoseWhoCanRun) {
  const Tickets tickets{4, 100, 2, 1};
  Hall hall{Discipline::lottery, tickets};
  std::vector<std::uint64_t> wins(4, 0);
  for (int tick = 0; tick < 20'000 / TS_TEST_SLOWNESS; ++tick) {
    ++wins[hall.schedule().next([](std::uint32_t thread) { return thread != 1; })];
  }
  EXPECT_EQ(wins[1], 0U);
  expect_shares(wins, {4, 0, 2, 1});
}

// A thread that has just won wins the next drawing as often as ever.
TEST(LotteryTest, ForgetsWhoWonBefore) {
  const Tickets tickets{3, 2, 1};
  for (std::uint32_t winner = 0; winner < 3; ++winner) {
    Hall hall{Discipline::lottery, tickets, 5};
    std::vector<std::uint64_t> wins(3, 0);
    std::uint32_t last = no_thread;
    for (int tick = 0; tick < 60'000 / TS_TEST_SLOWNESS; ++tick) {
      const std::uint32_t drawn = hall.tick();
      if (last == winner) ++wins[drawn];
      last = drawn;
    }
    expect_shares(wins, tickets);
  }
}

TEST(LotteryTest, EachSeedIsALotteryOfItsOwn) {
  std::set<std::vector<std::uint32_t>> orders;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    orders.insert(Hall{Discipline::lottery, {1, 1, 1}, seed}.run(50));
  }
  EXPECT_EQ(orders.size(), 100U);
}

// Meters advance here too, and show how far chance leads astray.
TEST(LotteryTest, MetersShowWhatEachHasHadPerTicket) {
  Hall hall{Discipline::lottery, {3, 1}};
  hall.run(100);
  EXPECT_EQ(hall.schedule().client(0).meter, meter_after(hall.ticks_of(0), 3, hall.denominator()));
  EXPECT_EQ(hall.schedule().meter(1), static_cast<double>(hall.ticks_of(1)));
}

TEST(RandomTest, IsSplitMix64) {
  Random random{1234567};  // the authors' own numbers
  for (const std::uint64_t expected :
       {6457827717110365317U, 3203168211198807973U, 9817491932198370423U}) {
    EXPECT_EQ(random.next(), expected);
  }
}

// A bound that is no divisor of 2^64 by far: the remainder alone would draw the first third twice
// as often as the others.
TEST(RandomTest, BelowDrawsEachNumberEquallyOften) {
  Random random{9};
  constexpr std::uint64_t third = std::uint64_t{1} << 62;
  std::vector<std::uint64_t> drawn(3, 0);
  for (int i = 0; i < 20'000; ++i) ++drawn[random.below(3 * third) / third];
  expect_shares(drawn, {1, 1, 1});
  EXPECT_EQ(random.below(1), 0U);
}

}  // namespace
}  // namespace ts::replay::testing
