// Histograms, contents, slots and places of samples, each by itself.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "replay/calls.h"
#include "replay/result.h"
#include "replay/waiting.h"

namespace ts::replay::testing {
namespace {

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

TEST(Histogram, SumsAreThoseOfBoth) {
  Histogram one = {};
  Histogram other = {};
  for (std::uint64_t i = 0; i < 100; ++i) (i % 2 == 0 ? one : other).add(i);
  one.add(other);
  EXPECT_EQ(one.count(), 100U);
  EXPECT_EQ(one.max(), 99U);
  std::uint64_t seen = 0;
  std::uint64_t last = 0;
  one.for_each([&](std::uint64_t upper, std::uint64_t count) {
    EXPECT_TRUE(seen == 0 || upper > last);
    last = upper;
    seen += count;
  });
  EXPECT_EQ(seen, 100U);
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

TEST(Content, GrowthAndShrinkageKeepWhatTheyMust) {
  for (const Touch touch : {Touch::first, Touch::all}) {
    const Content content{touch, true};
    std::vector<unsigned char> block(10'000, 0xaa);
    content.write(block.data(), 0, 100, 3);
    EXPECT_EQ(content.check(block.data(), 100, 100, 3), intact);
    content.write(block.data(), 100, 9'000, 3);  // has grown
    EXPECT_EQ(content.check(block.data(), 9'000, 9'000, 3), intact);
    EXPECT_EQ(content.check(block.data(), 9'000, 50, 3), intact);  // is to shrink
    block[8'999] ^= 1;
    EXPECT_EQ(content.check(block.data(), 9'000, 50, 3), intact) << "looks only at what is kept";
    EXPECT_EQ(content.check(block.data(), 9'000, 9'000, 3), 8'999U);
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

TEST(Content, ZeroIsTheAbsenceOfAnythingElse) {
  std::vector<unsigned char> block(1'003, 0);
  EXPECT_EQ(Content::check_zero(block.data(), block.size()), intact);
  for (const std::size_t wrong : {0U, 8U, 500U, 1'002U}) {
    block[wrong] = 1;
    EXPECT_EQ(Content::check_zero(block.data(), block.size()), wrong);
    EXPECT_EQ(Content::check_zero(block.data(), wrong), intact);
    block[wrong] = 0;
  }
}

// Each number is a turn of one thread; the sum is a plain variable, which the turns must protect.
TEST(Turn, TurnsAreTakenInOrder) {
  constexpr std::uint32_t threads = 8;
  constexpr std::uint32_t turns = 20'000 / TS_TEST_SLOWNESS;
  Turn turn;
  std::vector<std::uint32_t> order;
  std::vector<std::thread> all;
  for (std::uint32_t t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      for (std::uint32_t i = t; i < turns; i += threads) {
        turn.wait(i, i % 3 == 0 ? 0 : 50);
        order.push_back(i);
        EXPECT_TRUE(turn.pass(i));
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  ASSERT_EQ(order.size(), turns);
  for (std::uint32_t i = 0; i < turns; ++i) ASSERT_EQ(order[i], i);
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
  EXPECT_EQ(progress.done(), epochs);
  EXPECT_EQ(done.load(), epochs);
}

TEST(SamplePlaces, AreAsManyAsWereAskedForAndThePeak) {
  for (const std::uint64_t epochs : {1U, 7U, 100U, 1'000U}) {
    for (const std::uint64_t wanted : {1U, 10U, 100U, 5'000U}) {
      for (const std::uint64_t peak : {std::uint64_t{0}, epochs / 2, epochs - 1}) {
        const SamplePlaces places{wanted, epochs, peak};
        std::uint64_t next = 0;
        bool has_peak = false;
        for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
          const std::uint64_t place = places.place(epoch);
          if (place == SamplePlaces::no_place) continue;
          EXPECT_EQ(place, next++);
          has_peak |= epoch == peak;
        }
        EXPECT_TRUE(has_peak);
        EXPECT_GE(next, std::min(wanted, epochs));
        EXPECT_LE(next, std::min(wanted, epochs) + 1);
      }
    }
  }
  EXPECT_EQ((SamplePlaces{0, 10, 3}.place(3)), SamplePlaces::no_place);
}

}  // namespace
}  // namespace ts::replay::testing
