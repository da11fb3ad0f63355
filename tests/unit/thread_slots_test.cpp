// Per-thread state of heaps: void once the heap is gone, and only for a thousand heaps. (ThreadExit
// tests threads that end.)
#include "classic/thread_slots.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

// A stand-in for a heap, which counts what is returned.
struct Owner {
  ThreadSlots slots{this, retire};
  std::atomic<int> retired{0};

  bool set(void* state) {
    if (!slots.make_ready()) return false;
    slots.set(state);
    return true;
  }
  static void retire(void* self, void*) { ++static_cast<Owner*>(self)->retired; }
};

int states[2];  // their addresses are the states

// The slot of a destroyed heap is reused by another heap, which must not see the old states.
// Nothing of the old heap is returned when the thread ends.
TEST(ThreadSlotsTest, StatesOfADestroyedHeapAreVoid) {
  auto old = std::make_unique<Owner>();
  Owner fresh;
  {
    Worker other;
    other.run([&] { ASSERT_TRUE(old->set(&states[0])); });
    old->slots.close();
    other.run([&] { EXPECT_EQ(old->slots.get(), nullptr); });
    ASSERT_TRUE(fresh.set(&states[1]));  // takes the slot that is free now
    other.run([&] { EXPECT_EQ(fresh.slots.get(), nullptr); });
  }
  EXPECT_EQ(old->retired, 0);
  EXPECT_EQ(fresh.retired, 0);
  fresh.slots.close();
}

TEST(ThreadSlotsTest, ServesAThousandHeapsAndRefusesTheRest) {
  std::vector<std::unique_ptr<Owner>> owners;
  for (int i = 0; i < 1100; ++i) {
    owners.push_back(std::make_unique<Owner>());
    if (!owners.back()->set(&states[0])) break;
  }
  EXPECT_GT(owners.size(), 1000U);
  ASSERT_LT(owners.size(), 1100U) << "no limit found";
  EXPECT_EQ(owners.back()->slots.get(), nullptr);
  // A refused heap gets a slot once another heap is gone.
  owners.front()->slots.close();
  EXPECT_TRUE(owners.back()->set(&states[1]));
  EXPECT_EQ(owners.back()->slots.get(), &states[1]);
  for (const auto& owner : owners) owner->slots.close();
}

}  // namespace
}  // namespace ts::testing
