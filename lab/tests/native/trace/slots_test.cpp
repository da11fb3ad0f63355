// Slots against a naive account of what lives.
#include "trace/slots.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace ts::trace {
namespace {

// Random allocations and frees by several threads, which come and go.
void check(std::uint32_t threads, std::uint64_t seed, std::size_t about_live) {
  Slots slots;
  std::mt19937_64 random{seed};
  std::vector<Slot> live;
  std::map<std::uint32_t, std::uint32_t> made;  // objects of each slot so far
  std::map<std::uint32_t, bool> is_taken;
  std::size_t max_live = 0;
  for (std::uint64_t now = 0; now < 100'000; ++now) {
    const auto thread = static_cast<std::uint32_t>(random() % threads);
    if (random() % 500 == 0) slots.end_thread(thread, now);
    if (random() % (2 * about_live) >= live.size()) {
      const Slot slot = slots.take(thread, now);
      ASSERT_FALSE(is_taken[slot.number]);
      ASSERT_EQ(slot.generation, made[slot.number]++);
      ASSERT_LT(slot.number, slots.count());
      is_taken[slot.number] = true;
      live.push_back(slot);
    } else {
      const std::size_t place = random() % live.size();
      slots.give_back(live[place], thread, now);
      is_taken[live[place].number] = false;
      live[place] = live.back();
      live.pop_back();
    }
    max_live = std::max(max_live, live.size());
  }
  // Each thread keeps some for itself, and what was freed lately is nobody's yet.
  EXPECT_LE(slots.count(), threads == 1 ? max_live + 5'000 : max_live + threads * 256 + 10'000);
}

TEST(Slots, NoTwoLivingObjectsShareOne) {
  check(1, 1, 300);
  check(2, 2, 300);
  check(16, 3, 2'000);
}

TEST(Slots, OneThreadUsesNoMoreThanWhatLives) {
  Slots slots;
  std::vector<Slot> live;
  for (std::uint64_t now = 0; now < 10'000; ++now) {
    if (now % 20 < 10) {
      live.push_back(slots.take(0, now));
    } else {
      slots.give_back(live.back(), 0, now);
      live.pop_back();
    }
  }
  EXPECT_EQ(slots.count(), 10U);
}

TEST(Slots, AThreadReusesItsOwnAtOnceAndOthersLater) {
  Slots slots;
  const Slot first = slots.take(0, 0);
  slots.take(1, 1);
  slots.give_back(first, 1, 2);  // what a consumer frees, it keeps
  EXPECT_EQ(slots.take(1, 3), (Slot{first.number, 1}));
  slots.give_back({first.number, 1}, 1, 4);
  slots.end_thread(1, 5);
  std::vector<Slot> taken;
  for (int i = 0; i < 8; ++i) taken.push_back(slots.take(0, 6));
  for (const Slot slot : taken) EXPECT_NE(slot.number, first.number);
  bool is_found = false;
  for (int i = 0; i < 8; ++i) is_found |= slots.take(0, 10'000) == Slot{first.number, 2};
  EXPECT_TRUE(is_found);
}

TEST(Slots, AChildTakesNewOnes) {
  Slots parent;
  for (int i = 0; i < 5; ++i) parent.take(0, 0);
  Slots child{parent.count()};
  EXPECT_EQ(child.take(0, 0), (Slot{5, 0}));
  child.give_back({3, 7}, 0, 1);  // an inherited object
  EXPECT_EQ(child.take(0, 2), (Slot{3, 8}));
}

}  // namespace
}  // namespace ts::trace
