// The locks: mutual exclusion, the two rules of the writer-preferring lock, no lost wake-ups, and
// the state after a fork.
#include "os/mutex.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <fstream>
#include <random>
#include <string>
#include <thread>

#include "os/fork_lock.h"
#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

// A thread that does one thing; another thread can wait until it sleeps in it.
class Sleeper {
 public:
  template <class Job>
  explicit Sleeper(Job job)
      : thread_{[this, job] {
          number_ = ::gettid();
          job();
        }} {}
  ~Sleeper() { thread_.join(); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  void await_sleep() const {
    await([this] { return number_ != 0; });
    await([this] {
      std::ifstream file{"/proc/self/task/" + std::to_string(number_) + "/stat"};
      std::string text;
      std::getline(file, text);
      return text.compare(text.rfind(')') + 1, 2, " S") == 0;
    });
  }

 private:
  std::atomic<pid_t> number_{0};
  std::thread thread_;
};
using Sleepers = std::deque<Sleeper>;

void await_sleep(const Sleepers& sleepers) {
  for (const Sleeper& sleeper : sleepers) sleeper.await_sleep();
}

// ---- Mutex ----

// Parked (not spinning) threads are woken one after the other.
TEST(MutexTest, WakesEveryParkedThread) {
  Mutex mutex;
  std::atomic<int> passed{0};
  mutex.lock();
  {
    Sleepers waiting;
    for (int i = 0; i < 6; ++i) {
      waiting.emplace_back([&] {
        const Guard guard{mutex};
        ++passed;
      });
    }
    await_sleep(waiting);
    EXPECT_EQ(passed, 0);
    mutex.unlock();
  }
  EXPECT_EQ(passed, 6);
}

// ---- SharedMutex: which threads pass ----

// The rule that gives the lock its name: even a waiting writer blocks new readers.
TEST(SharedMutexTest, ReaderDoesNotPassAWaitingWriter) {
  SharedMutex mutex;
  std::atomic<bool> wrote{false};
  std::atomic<bool> read{false};
  mutex.lock_shared();
  Sleeper writer{[&] {
    mutex.lock();
    EXPECT_FALSE(read);
    wrote = true;
    mutex.unlock();
  }};
  writer.await_sleep();
  Sleeper reader{[&] {
    mutex.lock_shared();
    EXPECT_TRUE(wrote);
    read = true;
    mutex.unlock_shared();
  }};
  reader.await_sleep();
  EXPECT_FALSE(wrote) << "the writer passed a reader";
  EXPECT_FALSE(read) << "a reader passed a waiting writer";
  EXPECT_FALSE(mutex.try_lock_shared());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock_shared();
}

// A writer that unlocks hands over to waiting writers first, and only then to readers.
TEST(SharedMutexTest, WaitingWritersGoBeforeWaitingReaders) {
  SharedMutex mutex;
  std::atomic<int> writers_done{0};
  std::atomic<int> readers_done{0};
  mutex.lock_shared();
  {
    Sleepers writers;
    for (int i = 0; i < 3; ++i) {
      writers.emplace_back([&] {
        mutex.lock();
        EXPECT_EQ(readers_done, 0);
        ++writers_done;
        mutex.unlock();
      });
    }
    await_sleep(writers);
    Sleepers readers;
    for (int i = 0; i < 3; ++i) {
      readers.emplace_back([&] {
        mutex.lock_shared();
        EXPECT_EQ(writers_done, 3);
        ++readers_done;
        mutex.unlock_shared();
      });
    }
    await_sleep(readers);
    mutex.unlock_shared();
  }
  EXPECT_EQ(readers_done, 3);
}

TEST(SharedMutexTest, ParkedReadersAreWokenTogether) {
  SharedMutex mutex;
  std::atomic<int> inside{0};
  mutex.lock();
  Sleepers readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      const SharedGuard guard{mutex};
      ++inside;
      await([&] { return inside == 4; });  // all four must be in at the same time
    });
  }
  await_sleep(readers);
  EXPECT_EQ(inside, 0);
  mutex.unlock();
}

// Many readers and writers for a long time: no wake-up is lost (that would hang the test), writers
// are exclusive, and readers see what a writer wrote completely.
TEST(SharedMutexTest, SurvivesALongCrowd) {
  SharedMutex mutex;
  constexpr unsigned threads = 8;
  constexpr unsigned rounds = 60'000 / slowness;
  std::size_t first = 0;
  std::size_t second = 0;
  std::atomic<std::size_t> writes{0};
  std::atomic<int> readers_inside{0};
  run_threads(threads, [&](unsigned i) {
    std::mt19937 random{i};
    for (unsigned round = 0; round < rounds; ++round) {
      // A phase of mostly readers, then one of mostly writers.
      const unsigned writers_in_eight = round / 4096 % 2 == 0 ? 1 : 6;
      if (random() % 8 < writers_in_eight) {
        if (random() % 4 != 0 || !mutex.try_lock()) mutex.lock();
        ASSERT_EQ(readers_inside, 0);
        ++first;
        if (random() % 64 == 0) std::this_thread::yield();
        ++second;
        ++writes;
        mutex.unlock();
      } else {
        if (random() % 4 != 0 || !mutex.try_lock_shared()) mutex.lock_shared();
        ++readers_inside;
        ASSERT_EQ(first, second);
        if (random() % 64 == 0) std::this_thread::yield();
        --readers_inside;
        mutex.unlock_shared();
      }
    }
  });
  EXPECT_EQ(first, writes);
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

// ---- ForkLock ----

// The first of several heaps takes the mutex for all of them and the last releases it, in parent
// and child.
TEST(ForkLockTest, HoldsFromTheFirstPrepareToTheLastReturn) {
  ForkLock lock;
  const auto is_held = [&] {
    if (!lock.mutex.try_lock()) return true;
    lock.mutex.unlock();
    return false;
  };
  lock.prepare();
  lock.prepare();
  EXPECT_TRUE(is_held());
  lock.parent();
  EXPECT_TRUE(is_held());
  lock.parent();
  EXPECT_FALSE(is_held());

  lock.prepare();
  lock.prepare();
  EXPECT_FALSE(lock.child());
  EXPECT_TRUE(is_held());
  EXPECT_TRUE(lock.child());
  EXPECT_FALSE(is_held());
}

}  // namespace
}  // namespace ts::testing
