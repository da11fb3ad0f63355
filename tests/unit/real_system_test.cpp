// The calls of os.h on the real system. Heaps whose break is moved by others, or cannot move, are
// covered by Policy (tests/property) and conformance.scarcity.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "os/os.h"

namespace ts::testing {
namespace {

TEST(RealSystem, DiscardedAndFreshMemoryReadsAsZero) {
  const std::size_t page = os::page_bytes();
  auto* const memory = static_cast<unsigned char*>(os::map(4 * page));
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory[0], 0);
  std::memset(memory, 7, 4 * page);
  os::discard(memory + page, 2 * page);
  EXPECT_EQ(memory[page - 1], 7);
  EXPECT_EQ(memory[page], 0);
  EXPECT_EQ(memory[3 * page - 1], 0);
  EXPECT_EQ(memory[3 * page], 7);
  EXPECT_TRUE(os::unmap(memory, 4 * page));
}

TEST(RealSystem, RefusesWhatCannotBe) {
  EXPECT_EQ(os::map(std::size_t{1} << 60), nullptr);
  EXPECT_EQ(os::grow_break(SIZE_MAX), nullptr);
  EXPECT_EQ(os::grow_break(std::size_t{1} << 60), nullptr);
  EXPECT_FALSE(os::shrink_break(os::current_break(), SIZE_MAX));
  int elsewhere = 0;
  void* const end = os::current_break();
  EXPECT_FALSE(os::shrink_break(&elsewhere, 4096));
  EXPECT_EQ(os::current_break(), end);
  EXPECT_GE(os::processor_count(), 1U);
}

TEST(RealSystem, WaitReturnsAtOnceUnlessTheWordIsAsExpected) {
  std::atomic<std::uint32_t> word{1};
  os::wait(word, 2);  // hangs if this is wrong
  std::thread waiting{[&] {
    while (word.load() == 1) os::wait(word, 1, 4);
  }};
  word = 2;
  os::wake(word, 1, 2);  // another kind; mutex_test.cpp shows that it wakes no thread
  os::wake(word, 1, 4);
  waiting.join();
}

}  // namespace
}  // namespace ts::testing
