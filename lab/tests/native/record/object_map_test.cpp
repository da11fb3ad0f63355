// The map against one of the standard library's, over many forks.
#include "record/collector/object_map.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <vector>

namespace ts::record {
namespace {

// A map, and what it must say.
struct Watched {
  ObjectMap map;
  std::map<std::uint64_t, std::uint64_t> expected;

  void put(std::uint64_t address, std::uint64_t object) {
    const auto former = expected.find(address);
    EXPECT_EQ(map.put(address, object),
              former != expected.end() ? std::optional{former->second} : std::nullopt);
    expected[address] = object;
  }
  void take(std::uint64_t address) {
    const auto found = map.take(address);
    const auto known = expected.find(address);
    ASSERT_EQ(found.has_value(), known != expected.end()) << address;
    if (!found) return;
    EXPECT_EQ(*found, known->second);
    expected.erase(known);
  }
  void check_all() {
    const auto all = expected;
    for (const auto& [address, object] : all) take(address);
    EXPECT_TRUE(expected.empty());
  }
};

TEST(AddressTable, GrowsAndForgets) {
  AddressTable table;
  constexpr std::uint64_t count = 10'000;
  for (std::uint64_t i = 1; i <= count; ++i) table.put(16 * i, i);
  EXPECT_EQ(table.size(), count);
  for (std::uint64_t i = 1; i <= count; i += 2) table.take(16 * i);
  EXPECT_FALSE(table.take(8).has_value());
  EXPECT_EQ(table.size(), count / 2);
  for (std::uint64_t i = 1; i <= count; ++i) {
    const std::uint64_t* const found = table.find(16 * i);
    ASSERT_EQ(found != nullptr, i % 2 == 0);
    if (found != nullptr) {
      EXPECT_EQ(*found, i);
    }
  }
}

// Clusters are where an erasure can hide a neighbour.
TEST(AddressTable, AgreesWithAMapOnFewAddresses) {
  std::mt19937_64 random{1};
  AddressTable table;
  std::map<std::uint64_t, std::uint64_t> expected;
  for (int i = 0; i < 200'000; ++i) {
    const std::uint64_t address = 16 * (1 + random() % 150);
    if (random() % 2 == 0) {
      const auto former = expected.find(address);
      ASSERT_EQ(table.put(address, static_cast<std::uint64_t>(i)),
                former != expected.end() ? std::optional{former->second} : std::nullopt);
      expected[address] = static_cast<std::uint64_t>(i);
    } else {
      ASSERT_EQ(table.take(address).has_value(), expected.erase(address) == 1);
    }
    const std::uint64_t asked = 16 * (1 + random() % 150);
    const auto known = expected.find(asked);
    const std::uint64_t* const found = table.find(asked);
    ASSERT_EQ(found != nullptr, known != expected.end());
    if (found != nullptr) {
      ASSERT_EQ(*found, known->second);
    }
    ASSERT_EQ(table.size(), expected.size());
  }
}

TEST(ObjectMap, AgreesWithMapsInAFamily) {
  std::mt19937_64 random{2};
  std::vector<Watched> family(1);
  std::uint64_t next_object = 0;
  for (int step = 0; step < 100'000; ++step) {
    Watched& one = family[random() % family.size()];
    const std::uint64_t address = 16 * (1 + random() % 300);
    const std::uint64_t choice = random() % 100;
    if (choice < 50) {
      one.put(address, next_object++);
    } else if (choice < 97) {
      one.take(address);
    } else if (choice < 98 && family.size() < 12) {
      Watched child{one.map.fork(), one.expected};
      family.push_back(std::move(child));
    } else if (choice < 99) {
      one.map.settle();
    } else if (family.size() > 1) {
      family.erase(family.begin() + static_cast<std::ptrdiff_t>(random() % family.size()));
    }
    for (const Watched& each : family) ASSERT_LE(each.map.layers(), 8);
  }
  for (Watched& each : family) each.check_all();
}

// A shell forks thousands of times; its map must not become a list of layers.
TEST(ObjectMap, SettlesWhenChildrenAreGone) {
  Watched parent;
  for (std::uint64_t i = 1; i <= 1000; ++i) parent.put(16 * i, i);
  for (std::uint64_t i = 1; i <= 1000; ++i) {
    Watched child{parent.map.fork(), parent.expected};
    child.take(16 * i);
    parent.take(16 * i);
    parent.put(16 * i, i + 1);
    EXPECT_EQ(parent.map.layers(), 1U);
  }
  parent.map.settle();
  EXPECT_EQ(parent.map.layers(), 0U);
  parent.check_all();
}

}  // namespace
}  // namespace ts::record
