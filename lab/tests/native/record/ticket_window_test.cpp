// Records in any order come out by ticket; gaps hold them up only as long as they should.
#include "record/collector/ticket_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <vector>

namespace ts::record {
namespace {

using Tickets = std::vector<std::uint64_t>;

class TicketWindowTest : public testing::Test {
 protected:
  void add(std::uint64_t ticket) {
    Record& record = records_.emplace_back();
    record.ticket.store(ticket);
    EXPECT_TRUE(window.add(record));
  }

  Tickets deliver(std::uint64_t limit, bool passes_gaps = false) {
    Tickets tickets;
    window.deliver(limit, passes_gaps,
                   [&](const Record& record) { tickets.push_back(record.ticket.load()); });
    return tickets;
  }

  TicketWindow window;
  std::deque<Record> records_;
};

TEST_F(TicketWindowTest, GivesNothingBeyondTheLimit) {
  for (const std::uint64_t ticket : Tickets{3, 1, 2, 4}) add(ticket);
  EXPECT_EQ(deliver(2), (Tickets{1, 2}));
  EXPECT_EQ(deliver(2), Tickets{});
  EXPECT_EQ(deliver(4), (Tickets{3, 4}));
  EXPECT_EQ(window.next(), 5U);
}

TEST_F(TicketWindowTest, StopsAtAGap) {
  for (const std::uint64_t ticket : Tickets{1, 3, 4}) add(ticket);
  EXPECT_EQ(deliver(4), Tickets{1});
  add(2);
  EXPECT_EQ(deliver(4), (Tickets{2, 3, 4}));
}

TEST_F(TicketWindowTest, PassesAGapAndTakesLateOnesFirst) {
  for (const std::uint64_t ticket : Tickets{1, 4, 6}) add(ticket);
  EXPECT_EQ(deliver(4, true), (Tickets{1, 4}));
  add(3);
  add(2);
  add(5);
  EXPECT_EQ(deliver(6), (Tickets{2, 3, 5, 6}));
}

TEST_F(TicketWindowTest, RefusesWhatNobodyCanHaveDrawn) {
  Record wild{};
  wild.ticket.store(std::uint64_t{1} << 60);
  EXPECT_FALSE(window.add(wild));
  add(1);
  EXPECT_EQ(deliver(1), Tickets{1});
}

TEST_F(TicketWindowTest, BringsAShuffleIntoOrder) {
  std::mt19937_64 random{3};
  Tickets all(20'000);
  std::iota(all.begin(), all.end(), 1);
  Tickets shuffled = all;
  for (auto from = shuffled.begin(); from < shuffled.end(); from += 500) {
    std::shuffle(from, from + 500, random);
  }
  Tickets out;
  for (const std::uint64_t ticket : shuffled) {
    add(ticket);
    if (random() % 20 != 0) continue;
    const Tickets some = deliver(window.highest());
    out.insert(out.end(), some.begin(), some.end());
  }
  const Tickets rest = deliver(window.highest());
  out.insert(out.end(), rest.begin(), rest.end());
  EXPECT_EQ(out, all);
}

}  // namespace
}  // namespace ts::record
