// Per-thread state of heaps: remembered, returned when the thread ends, and void once the heap is
// gone.
#include "classic/thread_slots.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

// A stand-in for a heap: keeps an int per thread, and counts what is returned.
struct Owner {
  ThreadSlots slots{this, retire};
  std::atomic<int> retired{0};
  std::atomic<void*> last_retired{nullptr};

  bool set(void* state) {
    if (!slots.make_ready()) return false;
    slots.set(state);
    return true;
  }
  static void retire(void* self, void* state) {
    auto* const owner = static_cast<Owner*>(self);
    ++owner->retired;
    owner->last_retired = state;
  }
};

int states[8];  // their addresses are the states

TEST(ThreadSlotsTest, EachThreadHasItsOwnState) {
  Owner owner;
  EXPECT_EQ(owner.slots.get(), nullptr);
  ASSERT_TRUE(owner.set(&states[0]));
  {
    Worker other;
    other.run([&] {
      EXPECT_EQ(owner.slots.get(), nullptr);
      ASSERT_TRUE(owner.set(&states[1]));
      EXPECT_EQ(owner.slots.get(), &states[1]);
    });
    EXPECT_EQ(owner.slots.get(), &states[0]);
  }
  owner.slots.close();
}

TEST(ThreadSlotsTest, StatesOfSeveralHeapsAreKeptApart) {
  Owner a;
  Owner b;
  ASSERT_TRUE(a.set(&states[0]));
  EXPECT_EQ(b.slots.get(), nullptr);
  ASSERT_TRUE(b.set(&states[1]));
  EXPECT_EQ(a.slots.get(), &states[0]);
  ASSERT_TRUE(a.set(&states[2]));
  EXPECT_EQ(a.slots.get(), &states[2]);
  EXPECT_EQ(b.slots.get(), &states[1]);
  a.slots.close();
  EXPECT_EQ(b.slots.get(), &states[1]);
  b.slots.close();
}

TEST(ThreadSlotsTest, AThreadsEndHandsItsStatesBack) {
  Owner a;
  Owner b;
  std::thread{[&] {
    ASSERT_TRUE(a.set(&states[3]));
    ASSERT_TRUE(b.set(&states[4]));
  }}.join();
  EXPECT_EQ(a.retired, 1);
  EXPECT_EQ(a.last_retired, &states[3]);
  EXPECT_EQ(b.retired, 1);
  EXPECT_EQ(b.last_retired, &states[4]);
  std::thread{[&] { EXPECT_EQ(a.slots.get(), nullptr); }}.join();
  EXPECT_EQ(a.retired, 1);  // a thread without state returns nothing
  a.slots.close();
  b.slots.close();
}

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

// A closed heap may start again.
TEST(ThreadSlotsTest, CanBeUsedAgainAfterClose) {
  Owner owner;
  ASSERT_TRUE(owner.set(&states[0]));
  owner.slots.close();
  EXPECT_EQ(owner.slots.get(), nullptr);
  ASSERT_TRUE(owner.set(&states[1]));
  EXPECT_EQ(owner.slots.get(), &states[1]);
  owner.slots.close();
}

// Thread-specific destructors that run after ours: the thread no longer has a table, and gets none.
TEST(ThreadSlotsTest, AnEndingThreadGetsNoTable) {
  static Owner owner;
  static std::atomic<int> seen_ready;
  static std::atomic<int> runs;
  seen_ready = 0;
  runs = 0;
  static pthread_key_t key;
  ASSERT_EQ(pthread_key_create(&key,
                               [](void* value) {
                                 // Runs it again in the next round, surely after ours.
                                 if (++runs == 1) pthread_setspecific(key, value);
                                 if (runs != 2) return;
                                 seen_ready = owner.slots.make_ready() ? 1 : -1;
                                 EXPECT_EQ(owner.slots.get(), nullptr);
                               }),
            0);
  std::thread{[] {
    pthread_setspecific(key, &owner);
    ASSERT_TRUE(owner.set(&states[5]));
  }}.join();
  EXPECT_EQ(runs, 2);
  EXPECT_EQ(seen_ready, -1);
  EXPECT_EQ(owner.retired, 1);
  pthread_key_delete(key);
  owner.slots.close();
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

TEST(ThreadSlotsTest, ManyThreadsComeAndGo) {
  Owner owner;
  constexpr int rounds = 200 / static_cast<int>(slowness) + 1;
  constexpr int threads = 8;
  for (int round = 0; round < rounds; ++round) {
    run_threads(threads, [&](unsigned) {
      EXPECT_EQ(owner.slots.get(), nullptr);
      ASSERT_TRUE(owner.set(&states[1]));
      EXPECT_EQ(owner.slots.get(), &states[1]);
    });
  }
  EXPECT_EQ(owner.retired, rounds * threads);
  owner.slots.close();
}

// In the child, the forking thread keeps its state, and the lock of the tables is free.
TEST(ThreadSlotsTest, AChildOfForkKeepsTheForkingThreadsState) {
  Owner owner;
  Worker other;
  ASSERT_TRUE(owner.set(&states[0]));
  other.run([&] { ASSERT_TRUE(owner.set(&states[1])); });
  ThreadSlots::fork_prepare();
  const pid_t child = fork();
  if (child == 0) {
    ThreadSlots::fork_child();
    const bool kept = owner.slots.get() == &states[0];
    Owner later;
    const bool works = later.set(&states[2]) && later.slots.get() == &states[2];
    _exit(kept && works ? 0 : 1);
  }
  ThreadSlots::fork_parent();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  other.run([&] { EXPECT_EQ(owner.slots.get(), &states[1]); });
  owner.slots.close();
}

}  // namespace
}  // namespace ts::testing
