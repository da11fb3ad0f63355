// Meters and their common denominator: exact, or refused.
#include "replay/schedule/meter.h"

#include <gtest/gtest.h>

#include "native/schedule/hall.h"

namespace ts::replay::testing {
namespace {

TEST(DenominatorTest, IsTheLeastCommonMultiple) {
  Denominator denominator;
  for (const std::uint32_t tickets : {4U, 6U, 10U}) ASSERT_TRUE(denominator.include(tickets));
  EXPECT_EQ(multiple(denominator), 60U);
  EXPECT_EQ(denominator.part(6) * 6, denominator.whole());
  EXPECT_TRUE(denominator.includes(15));
  EXPECT_FALSE(denominator.includes(7));
  EXPECT_FALSE(denominator.includes(0));
}

TEST(DenominatorTest, HasRoomForAnyTicketsUpTo42AndForThreePrimesUpToAMillion) {
  Denominator small;
  for (std::uint32_t tickets = 1; tickets <= 42; ++tickets) ASSERT_TRUE(small.include(tickets));
  Denominator large;
  for (const std::uint32_t prime : {999'983U, 999'979U, 999'961U}) {
    ASSERT_TRUE(large.include(prime));
  }
}

TEST(DenominatorTest, RefusesWhatIsTooLongAndStaysAsItWas) {
  Denominator denominator;
  for (const std::uint32_t prime : {999'983U, 999'979U, 999'961U}) {
    ASSERT_TRUE(denominator.include(prime));
  }
  const Meter before = denominator.whole();
  EXPECT_FALSE(denominator.include(999'959));
  EXPECT_EQ(denominator.whole(), before);
  EXPECT_FALSE(denominator.includes(999'959));
  EXPECT_TRUE(denominator.include(4));
  EXPECT_FALSE(denominator.include(32)) << "2^62 is the most";
}

// Two meters that no double can tell apart.
TEST(MeterTest, OrdersWhatRoundsToTheSameNumber) {
  Denominator denominator;
  ASSERT_TRUE(denominator.include(1'000'000'000));
  ASSERT_TRUE(denominator.include(999'999'999));
  const Meter ticks = denominator.whole() * 1'000'000'000;
  const Meter one = ticks + meter_after(999'999'998, 999'999'999, denominator);
  const Meter other = ticks + meter_after(999'999'999, 1'000'000'000, denominator);
  EXPECT_EQ(denominator.value(one), denominator.value(other));
  EXPECT_TRUE(one < other);
}

TEST(MeterTest, ValueIsItsNumber) {
  Denominator denominator;
  ASSERT_TRUE(denominator.include(3));
  ASSERT_TRUE(denominator.include(999'983));
  EXPECT_NEAR(denominator.value(meter_after(7, 3, denominator)), 7.0 / 3, 1e-15);
  EXPECT_NEAR(denominator.value(meter_after(500'000, 999'983, denominator)), 500'000.0 / 999'983,
              1e-15);
}

}  // namespace
}  // namespace ts::replay::testing
