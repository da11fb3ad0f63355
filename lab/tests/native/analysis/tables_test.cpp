// The tables that an analysis keeps, each against the plainest container that does the same.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "trace/analyze/birth_table.h"
#include "trace/analyze/buckets.h"
#include "trace/analyze/classes.h"
#include "trace/analyze/histogram.h"
#include "trace/analyze/object_set.h"
#include "trace/analyze/object_sizes.h"
#include "trace/analyze/size_counts.h"
#include "trace/format/error.h"
#include "trace/samples.h"
#include "usable/steps.h"

namespace ts::testing {
namespace {

using trace::testing::MemoryFile;
using namespace ts::trace;  // NOLINT(google-build-using-namespace): all that is tested

// --- buckets
// --------------------------------------------------------------------------------------

template <typename B>
void check_buckets() {
  std::uint64_t lower = 0;
  for (std::size_t i = 1; i < B::count; ++i) {
    const std::uint64_t upper = B::upper(i);
    ASSERT_GT(upper, lower);
    ASSERT_EQ(B::index(upper), i);
    ASSERT_EQ(B::index(lower + 1), i);
    // No bucket is wider than its share of an octave.
    ASSERT_TRUE(upper - lower == 1 || (upper - lower) <= lower / B::parts + 1) << upper;
    lower = upper;
  }
  EXPECT_EQ(B::index(0), 0U);
  EXPECT_EQ(lower, std::numeric_limits<std::uint64_t>::max());
}

TEST(Buckets, EachBoundBelongsToTheBucketBelow) {
  check_buckets<Octaves>();
  check_buckets<Eighths>();
  check_buckets<Buckets<5>>();
}

TEST(Buckets, BoundsThatPeopleExpect) {
  EXPECT_EQ(Eighths::upper(Eighths::index(9)), 9U);
  EXPECT_EQ(Eighths::upper(Eighths::index(16)), 16U);
  EXPECT_EQ(Eighths::upper(Eighths::index(17)), 18U);
  EXPECT_EQ(Eighths::upper(Eighths::index(1000)), 1024U);
  EXPECT_EQ(Eighths::upper(Eighths::index(1025)), 1152U);
  EXPECT_EQ(Octaves::upper(Octaves::index(1025)), 2048U);
}

TEST(Histogram, QuantilesAreWithinABucketOfTheTruth) {
  std::mt19937_64 random{3};
  Histogram histogram;
  std::vector<std::uint64_t> values;
  for (int i = 0; i < 5000; ++i) {
    values.push_back(random() >> (20 + random() % 40));
    histogram.add(values.back(), 1);
  }
  std::sort(values.begin(), values.end());
  for (const double share : {0.01, 0.25, 0.5, 0.9, 0.99, 1.0}) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * 5000.0)) - 1;
    const std::uint64_t found = histogram.quantile(share);
    EXPECT_GE(found, values[rank]);
    EXPECT_LE(static_cast<double>(found), static_cast<double>(values[rank]) * (1.0 + 1.0 / 32) + 1);
  }
  EXPECT_EQ(Histogram{}.quantile(0.5), 0U);
}

// --- sizes of objects
// -----------------------------------------------------------------------------

TEST(ObjectSizes, AsAMapWould) {
  std::mt19937_64 random{7};
  ObjectSizes sizes;
  std::map<std::uint64_t, std::uint64_t> expected;
  std::uint64_t bytes = 0;
  for (int i = 0; i < 200'000; ++i) {
    // A window that moves over several pages, and some objects far away.
    const std::uint64_t object = random() % 50 == 0
                                     ? random() % (1ULL << 40)
                                     : static_cast<std::uint64_t>(i) + random() % 500;
    const auto known = expected.find(object);
    if (random() % 3 == 0) {
      const auto removed = sizes.remove(object);
      ASSERT_EQ(removed.has_value(), known != expected.end());
      if (removed) {
        ASSERT_EQ(*removed, known->second);
        bytes -= known->second;
        expected.erase(known);
      }
    } else {
      const std::uint64_t size =
          random() % 100 == 0 ? 0xffff'fff0 + random() % 100 : random() % 1000;
      if (known != expected.end()) bytes -= known->second;
      sizes.set(object, size);
      expected[object] = size;
      bytes += size;
    }
    ASSERT_EQ(sizes.objects(), expected.size());
    ASSERT_EQ(sizes.bytes(), bytes);
  }
  std::map<std::uint64_t, std::uint64_t> all;
  sizes.each([&](std::uint64_t object, std::uint64_t size) { all[object] = size; });
  EXPECT_EQ(all, expected);
}

TEST(ObjectSet, PlacesAreRanks) {
  std::mt19937_64 random{8};
  ObjectSet set;
  std::set<std::uint64_t> members;
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t object =
        i % 100 == 0 ? random() % (1ULL << 45) : 3'000'000 + random() % 200'000;
    set.add(object);
    members.insert(object);
  }
  set.close();
  ASSERT_EQ(set.members(), members.size());
  std::uint64_t place = 0;
  for (const std::uint64_t member : members) {
    ASSERT_EQ(set.place(member), place++);
    if (!members.contains(member + 1)) {
      ASSERT_FALSE(set.place(member + 1).has_value());
    }
  }
}

// --- births
// ---------------------------------------------------------------------------------------

Birth random_birth(std::mt19937_64& random, std::uint64_t moment) {
  Birth birth;
  birth.is_inherited = random() % 20 == 0;
  birth.size = random() % 30 == 0 ? 0xffff'fff0 + random() % 100 : random() % 5000;
  if (birth.is_inherited) return birth;
  birth.event = moment + (random() % 200 == 0 ? 1ULL << 33 : 0);
  birth.time_ns =
      3'000'000'000 + moment * 100 - random() % 2000 + (random() % 100 == 0 ? 5'000'000'000 : 0);
  birth.clock_bytes = moment * 10 + birth.size + (random() % 100 == 0 ? 1ULL << 40 : 0);
  birth.thread = static_cast<std::uint32_t>(random() % (random() % 10 == 0 ? 70'000 : 8));
  return birth;
}

TEST(BirthTable, AsAMapWould) {
  constexpr std::uint64_t places = 20'000;
  std::mt19937_64 random{9};
  BirthTable table{places};
  std::map<std::uint64_t, Birth> expected;
  std::uint64_t next = 0;
  while (next < places || !expected.empty()) {
    const std::uint64_t dice = random() % 4;
    if (next < places && dice < 2) {
      const Birth birth = random_birth(random, next);
      table.insert(next, birth);
      expected[next] = birth;
      expected[next++].is_there = true;
      continue;
    }
    if (expected.empty()) continue;
    // Near the newest, mostly: pages go and come.
    auto known = random() % 8 == 0 ? expected.begin() : std::prev(expected.end());
    if (dice == 2) {
      const std::uint64_t size = random() % 40 == 0 ? (7ULL << 32) + random() % 9 : random() % 900;
      if (known->second.resizes++ == 0) known->second.first_size = known->second.size;
      known->second.size = size;
      table.find(known->first)->resize(size);
    } else {
      table.remove(known->first);
      ASSERT_EQ(table.find(known->first), nullptr);
      expected.erase(known);
      continue;
    }
    ASSERT_EQ(*table.find(known->first), known->second);
    if (next == places && random() % 2000 == 0) break;  // something is left for each()
  }
  std::size_t left = 0;
  table.each([&](const Birth&) { ++left; });
  EXPECT_EQ(left, expected.size());
}

// --- sizes asked for
// ------------------------------------------------------------------------------

TEST(SizeCounts, TooManyLargeSizesShareBuckets) {
  SizeCounts counts;
  constexpr std::uint64_t first = 1U << 20;
  for (std::uint64_t i = 0; i < SizeCounts::max_large; ++i) ++counts.of(first + 2 * i).allocations;
  EXPECT_TRUE(counts.is_exact());
  const std::uint64_t odd = first + 1;
  ++counts.of(odd).allocations;
  ++counts.of(odd).allocations;
  EXPECT_FALSE(counts.is_exact());
  const std::uint64_t bound = Eighths::upper(Eighths::index(odd));
  std::uint64_t at_bound = 0;
  std::uint64_t all = 0;
  counts.each([&](std::uint64_t size, const SizeCount& count) {
    if (size == bound) at_bound = count.allocations;
    all += count.allocations;
  });
  EXPECT_EQ(at_bound, 3U);  // its own, and those two
  EXPECT_EQ(all, SizeCounts::max_large + 2);
}

// --- classes
// --------------------------------------------------------------------------------------

class ClassesFile : public ::testing::Test {
 protected:
  std::vector<Classes> read(const std::string& text) {
    std::ofstream{file_.path()} << text;
    return read_classes(file_.path());
  }
  MemoryFile file_;
};

TEST_F(ClassesFile, UsableBytes) {
  const auto all = read(
      "allocator one\nrun 8 8 2 0\nrun 24 16 10 8\n\n"
      "allocator two\nrun 0 1 1 16\nrun 64 64 4 0\n");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name(), "one");
  EXPECT_EQ(all[0].usable(0), 8U);
  EXPECT_EQ(all[0].usable(8), 8U);
  EXPECT_EQ(all[0].usable(9), 16U);
  EXPECT_EQ(all[0].usable(17), 32U);  // up to 24, and 8 more
  EXPECT_EQ(all[0].usable(25), 48U);
  EXPECT_EQ(all[0].usable(1000), 24U + 61 * 16 + 8);  // beyond the last class
  EXPECT_EQ(all[1].usable(0), 16U);
  EXPECT_EQ(all[1].usable(1), 64U);
  EXPECT_EQ(all[1].usable(65), 128U);
}

TEST_F(ClassesFile, WhatIsNoneIsRefusedWithItsLine) {
  for (const char* text :
       {"", "run 8 8 2 0\n", "allocator\n", "allocator a\n", "allocator a\nrun 8 8 2\n",
        "allocator a\nrun 8 8 2 0 9\n", "allocator a\nrun 8 0 2 0\n", "allocator a\nrun 8 8 0 0\n",
        "allocator a\nrun 8 8 4 0\nrun 16 8 1 0\n", "allocator a\nrun 99999999999999999 1 1 0\n",
        "allocator a\nsteps\n"}) {
    try {
      read(text);
      ADD_FAILURE() << "was read: " << text;
    } catch (const Error& error) {
      EXPECT_NE(std::string{error.what()}.find("line"), std::string::npos) << error.what();
    }
  }
}

TEST(Classes, APathThatIsNoFile) { EXPECT_THROW(read_classes("/nowhere/classes.txt"), Error); }

// --- steps, as `usable` finds them ---------------------------------------------------------------

// The classes of an allocator that is a function, and how often it was asked.
template <typename Function>
std::pair<Classes, std::size_t> found_classes(std::uint64_t most, Function function) {
  std::vector<Classes::Run> runs;
  std::size_t questions = 0;
  each_run(
      most,
      [&](std::uint64_t size) {
        ++questions;
        return function(size);
      },
      [&](const ts::Run& run) { runs.push_back(run); });
  return {Classes{"", runs}, questions};
}

TEST(Steps, AreFoundWhateverTheyAreLike) {
  const auto up = [](std::uint64_t size, std::uint64_t step) {
    return (size + step - 1) / step * step;
  };
  const auto octaves = [&](std::uint64_t size) -> std::uint64_t {
    return size <= 8 ? 8 : Eighths::upper(Eighths::index(size));
  };
  const auto glibc = [&](std::uint64_t size) -> std::uint64_t {
    return size < 100'000 ? std::max<std::uint64_t>(24, up(size + 8, 16) - 8)
                          : up(size + 24, 4096) - 16;
  };
  const auto with_canary = [&](std::uint64_t size) { return octaves(size + 8) + 3; };
  const auto odd = [&](std::uint64_t size) -> std::uint64_t {
    return size < 3 ? 5 : size < 5000 ? up(size, 7) : up(size, 5000);
  };
  const std::function<std::uint64_t(std::uint64_t)> all[] = {octaves, glibc, with_canary, odd};
  for (const auto& function : all) {
    constexpr std::uint64_t most = 3'000'000;
    const auto [classes, questions] = found_classes(most, function);
    for (std::uint64_t size = 0; size <= most; size += size < 20'000 ? 1 : 997) {
      ASSERT_EQ(classes.usable(size), function(size)) << size;
    }
    EXPECT_LT(questions, 6'000U);
  }
}

}  // namespace
}  // namespace ts::testing
