// Lists of tickets: what they mean, and what is wrong with bad ones.
#include "replay/schedule/tickets.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "native/schedule/hall.h"

namespace ts::replay {
namespace {

class TicketsTest : public ::testing::Test {
 protected:
  std::string refusal(const std::string& text) {
    const char* const problem = tickets_->parse(text.c_str());
    return problem != nullptr ? problem : "";
  }

  std::unique_ptr<Tickets> tickets_ = std::make_unique<Tickets>();
};

TEST_F(TicketsTest, AreEqualUnlessGiven) {
  EXPECT_EQ(tickets_->of(0), 1U);
  EXPECT_EQ(tickets_->of(1'000'000), 1U);
  EXPECT_TRUE(tickets_->denominator().includes(1));
}

TEST_F(TicketsTest, BeginAgainWhereTheListEnds) {
  ASSERT_EQ(refusal("3,2,1"), "");
  EXPECT_EQ(tickets_->count(), 3U);
  for (std::uint32_t thread = 0; thread < 12; ++thread) {
    EXPECT_EQ(tickets_->of(thread), 3 - thread % 3);
  }
  EXPECT_EQ(testing::multiple(tickets_->denominator()), 6U);
}

TEST_F(TicketsTest, HaveACommonDenominatorEvenIfTheyArePrimes) {
  ASSERT_EQ(refusal("999983,999979,999961"), "");
  EXPECT_TRUE(tickets_->denominator().includes(999'961));
}

TEST_F(TicketsTest, RefuseWhatIsNoListOfNumbers) {
  for (const char* text : {"", ",", "3,", ",3", "3,,2", "-1", "+1", "1.5", "3, 2", " 3", "3 ",
                           "3;2", "three", "0x10", "1e3", "\xd9\xa3"}) {
    EXPECT_NE(refusal(text).find("whole numbers from 1 to 1000000000"), std::string::npos) << text;
    EXPECT_NE(refusal(text).find("as in --tickets 3,2,1"), std::string::npos) << text;
  }
}

TEST_F(TicketsTest, RefuseAThreadThatWouldNeverRun) {
  for (const char* text : {"0", "3,0,1", "00"}) {
    EXPECT_NE(refusal(text).find("give each at least 1"), std::string::npos) << text;
  }
}

TEST_F(TicketsTest, RefuseTooManyForOneThread) {
  EXPECT_EQ(refusal("1000000000"), "");
  for (const char* text : {"1000000001", "18446744073709551617", "4294967296",
                           "99999999999999999999999999999999999999999999"}) {
    EXPECT_NE(refusal(text).find("divide all of them"), std::string::npos) << text;
  }
}

TEST_F(TicketsTest, RefuseALongList) {
  std::string longest = "1";
  for (std::size_t i = 1; i < max_listed_tickets; ++i) longest += ",1";
  EXPECT_EQ(refusal(longest), "");
  EXPECT_EQ(tickets_->count(), max_listed_tickets);
  EXPECT_NE(refusal(longest + ",1").find("give a shorter one"), std::string::npos);
}

TEST_F(TicketsTest, RefuseWhatHasNoCommonDenominator) {
  std::string all = "701";
  for (int tickets = 702; tickets < 1'400; ++tickets) all += "," + std::to_string(tickets);
  EXPECT_NE(refusal(all).find("share factors, or none above 42"), std::string::npos);
}

TEST_F(TicketsTest, AreEqualAfterARefusal) {
  ASSERT_EQ(refusal("5,4"), "");
  ASSERT_NE(refusal("5,4,x"), "");
  EXPECT_EQ(tickets_->of(0), 1U);
  EXPECT_EQ(tickets_->count(), 1U);
  EXPECT_EQ(testing::multiple(tickets_->denominator()), 1U);
}

}  // namespace
}  // namespace ts::replay
