// The map against one of the standard library's.
#include "record/collector/object_map.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>

namespace ts::record {
namespace {

TEST(ObjectMap, GrowsAndForgets) {
  ObjectMap map;
  EXPECT_FALSE(map.take(16).has_value());
  constexpr std::uint64_t count = 10'000;
  for (std::uint64_t i = 1; i <= count; ++i) map.put(16 * i, i);
  EXPECT_EQ(map.size(), count);
  for (std::uint64_t i = 1; i <= count; i += 2) map.take(16 * i);
  EXPECT_FALSE(map.take(8).has_value());
  EXPECT_EQ(map.size(), count / 2);
  ObjectMap child = map;
  for (std::uint64_t i = 1; i <= count; ++i) {
    EXPECT_EQ(map.take(16 * i), i % 2 == 0 ? std::optional{i} : std::nullopt);
  }
  EXPECT_EQ(child.take(32), 2U);
}

// Clusters are where an erasure can hide a neighbour.
TEST(ObjectMap, AgreesWithAMapOnFewAddresses) {
  std::mt19937_64 random{1};
  ObjectMap map;
  std::map<std::uint64_t, std::uint64_t> expected;
  for (std::uint64_t i = 0; i < 200'000; ++i) {
    const std::uint64_t address = 16 * (1 + random() % 150);
    const auto found = expected.find(address);
    const auto former = found != expected.end() ? std::optional{found->second} : std::nullopt;
    if (random() % 2 == 0) {
      ASSERT_EQ(map.put(address, i), former);
      expected[address] = i;
    } else {
      ASSERT_EQ(map.take(address), former);
      expected.erase(address);
    }
    ASSERT_EQ(map.size(), expected.size());
  }
}

}  // namespace
}  // namespace ts::record
