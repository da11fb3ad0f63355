// The arithmetic of meters: exact over long denominators and many ticks.
#include "replay/schedule/meter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "native/schedule/hall.h"

namespace ts::replay::testing {
namespace {

std::vector<std::uint32_t> primes_below(std::uint32_t bound, std::size_t count) {
  std::vector<std::uint32_t> primes;
  for (std::uint32_t candidate = bound - 1; primes.size() < count; --candidate) {
    bool is_prime = candidate > 1;
    for (std::uint32_t divisor = 2; is_prime && divisor * divisor <= candidate; ++divisor) {
      is_prime = candidate % divisor != 0;
    }
    if (is_prime) primes.push_back(candidate);
  }
  return primes;
}

TEST(WideTest, AgreesWith128BitArithmetic) {
  __extension__ using Long = unsigned __int128;
  std::mt19937_64 random{1};
  const auto wide = [](std::uint64_t high, std::uint32_t low) {  // (high * 2^32) + low
    Wide value{static_cast<std::uint32_t>(high >> 32)};
    for (const auto part : {static_cast<std::uint32_t>(high), low}) {
      EXPECT_TRUE(value.multiply(1U << 31));
      EXPECT_TRUE(value.multiply(2));
      value.add(Wide{part});
    }
    return value;
  };
  for (int i = 0; i < 10'000; ++i) {
    const std::uint64_t high = random() >> (random() % 64);
    const auto low = static_cast<std::uint32_t>(random());
    const auto divisor = static_cast<std::uint32_t>(random() >> 32 >> (random() % 32)) | 1U;
    const Long value = (Long{high} << 32) + low;

    const std::uint64_t large = random() | 1U;
    ASSERT_EQ(wide(high, low).divide(large), static_cast<std::uint64_t>(value % large));
    Wide quotient = wide(high, low);
    ASSERT_EQ(quotient.divide(divisor), static_cast<std::uint32_t>(value % divisor));
    const Long expected = value / divisor;
    ASSERT_EQ(quotient.compare(wide(static_cast<std::uint64_t>(expected >> 32),
                                    static_cast<std::uint32_t>(expected))),
              0);

    Wide product = quotient;  // and back: quotient * divisor = value - rest
    ASSERT_TRUE(product.multiply(divisor));
    Wide rest = wide(high, low);
    rest.subtract(product);
    ASSERT_EQ(rest.compare(Wide{static_cast<std::uint32_t>(value % divisor)}), 0);
    ASSERT_EQ(product.compare(wide(high, low)) <= 0, true);
  }
}

TEST(WideTest, TellsWhenAProductIsTooLong) {
  Wide value{1};
  for (int bit = 0; bit < 1150; ++bit) ASSERT_TRUE(value.multiply(2)) << bit;
  EXPECT_FALSE(value.multiply(2));
}

TEST(WideTest, RatiosOfLongNumbersAreThoseOfTheirHighestWords) {
  Wide whole{3};
  Wide part{1};
  for (int bit = 0; bit < 1148; ++bit) {
    EXPECT_NEAR(part.ratio_to(whole), 1.0 / 3, 1e-15) << bit;
    ASSERT_TRUE(whole.multiply(2));
    ASSERT_TRUE(part.multiply(2));
  }
  EXPECT_EQ(Wide{0}.ratio_to(whole), 0);
}

TEST(DenominatorTest, IsTheLeastCommonMultiple) {
  Denominator denominator;
  for (const std::uint32_t tickets : {4U, 6U, 10U}) ASSERT_TRUE(denominator.include(tickets));
  EXPECT_EQ(odd_multiple(denominator), 15U);
  Wide six_parts = denominator.part(6);
  ASSERT_TRUE(six_parts.multiply(6));
  EXPECT_EQ(six_parts.compare(denominator.whole()), 0);
  EXPECT_TRUE(denominator.includes(15));
  EXPECT_FALSE(denominator.includes(7));
  EXPECT_FALSE(denominator.includes(0));
}

TEST(DenominatorTest, HasRoomForAnyTicketsUpTo700AndFor51PrimesUpToAMillion) {
  Denominator small;
  for (std::uint32_t tickets = 1; tickets <= 700; ++tickets) {
    ASSERT_TRUE(small.include(tickets)) << tickets;
  }
  Denominator large;
  for (const std::uint32_t prime : primes_below(1'000'000, 51)) ASSERT_TRUE(large.include(prime));
}

TEST(DenominatorTest, RefusesWhatIsTooLongAndStaysAsItWas) {
  Denominator denominator;
  std::uint32_t refused = 0;
  for (const std::uint32_t prime : primes_below(1'000'000, 60)) {
    const Wide before = denominator.whole();
    if (denominator.include(prime)) continue;
    refused = prime;
    EXPECT_EQ(denominator.whole().compare(before), 0);
  }
  EXPECT_NE(refused, 0U);
  EXPECT_FALSE(denominator.includes(refused));
  EXPECT_TRUE(denominator.includes(999'983));
}

// As many parts as there are tickets are one whole, without a rest, whatever the other threads
// have.
TEST(MeterTest, AdvancesByExactlyOneInAsManyTicksAsThereAreTickets) {
  const std::vector<std::uint32_t> primes = primes_below(1'000'000, 51);
  Denominator denominator;
  for (const std::uint32_t prime : primes) ASSERT_TRUE(denominator.include(prime));
  for (const std::uint32_t tickets : {primes.front(), primes.back()}) {
    const Wide step = denominator.part(tickets);
    Meter meter;
    for (std::uint32_t i = 0; i < tickets - 1; ++i) meter.advance(step, denominator);
    EXPECT_EQ(meter.whole, 0U);
    meter.advance(step, denominator);
    EXPECT_EQ(meter.whole, 1U);
    EXPECT_EQ(meter.fraction.compare(Wide{0}), 0);
  }
}

// Two fractions that no double can tell apart.
TEST(MeterTest, OrdersWhatRoundsToTheSameNumber) {
  Denominator denominator;
  ASSERT_TRUE(denominator.include(1'000'000'000));
  ASSERT_TRUE(denominator.include(999'999'999));
  Meter one = meter_after(999'999'998, 999'999'999, denominator);
  Meter other = meter_after(999'999'999, 1'000'000'000, denominator);
  one.whole = other.whole = 100'000'000'000;
  EXPECT_EQ(one.value(denominator), other.value(denominator));
  EXPECT_LT(one.compare(other), 0);
  EXPECT_GT(other.compare(one), 0);
  EXPECT_EQ(one.compare(one), 0);
}

TEST(MeterTest, ValueIsItsNumber) {
  Denominator denominator;
  ASSERT_TRUE(denominator.include(3));
  ASSERT_TRUE(denominator.include(999'983));
  EXPECT_NEAR(meter_after(7, 3, denominator).value(denominator), 7.0 / 3, 1e-15);
  EXPECT_NEAR(meter_after(500'000, 999'983, denominator).value(denominator), 500'000.0 / 999'983,
              1e-15);
}

}  // namespace
}  // namespace ts::replay::testing
