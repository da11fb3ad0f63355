// Sources over the real system: the process's own break, which the C library's malloc and this test
// move too, and the limits of the kernel. What can be told by addresses alone is in
// source_test.cpp.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "os/os.h"
#include "unit/heaps.h"

namespace ts::testing {
namespace {

// Runs in a child of its own, since it changes what the whole process can get.
template <class Body>
void in_child(Body body) {
  EXPECT_EXIT(
      {
        body();
        std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

class RealBreak : public HeapSuite {};
INSTANTIATE_TEST_SUITE_P(, RealBreak, all_heaps(), heap_name);

// Allocates, fills, disturbs, checks and frees, as a program with a second user of sbrk would.
void use_disturbed_heap(AnyHeap& heap) {
  struct Filled {
    unsigned char* begin;
    std::size_t bytes;
    int pattern;
  };
  std::vector<Filled> live;
  for (int round = 0; round < 300; ++round) {
    const std::size_t bytes = static_cast<std::size_t>(round) * 37 % 3000;
    auto* const block = static_cast<unsigned char*>(heap.allocate(bytes, 16));
    ASSERT_NE(block, nullptr);
    ASSERT_EQ(address_of(block) % 16, 0U);
    std::memset(block, round & 0xff, bytes);
    live.push_back({block, bytes, round & 0xff});
    if (round % 7 == 0) {
      // Memory of other code, at an odd distance, and in use.
      void* const theirs = ::sbrk(1 + round);
      ASSERT_NE(theirs, reinterpret_cast<void*>(-1));
      std::memset(theirs, 0xff, static_cast<std::size_t>(1 + round));
    }
    if (round % 3 == 0) {
      heap.release(live.front().begin);
      live.erase(live.begin());
    }
  }
  for (const Filled& block : live) {
    for (std::size_t i = 0; i < block.bytes; ++i) ASSERT_EQ(block.begin[i], block.pattern);
    heap.release(block.begin);
  }
  EXPECT_TRUE(heap.is_valid());
  const HeapMeasures measures = heap.measures();
  EXPECT_EQ(bytes_in(blocks_of(heap), BlockState::used), 0U);
  EXPECT_LE(measures.free_bytes, measures.segment_bytes);
}

TEST_P(RealBreak, IsSharedWithAnotherUser) {
  in_child([] {
    const auto heap = make(growing_by(SourceKind::sbrk));
    use_disturbed_heap(*heap);
    EXPECT_GT(heap->measures().sbrk_calls, 10U);
    EXPECT_GT(heap->measures().chunks, 10U);
  });
}

// A soft limit of zero bytes of data refuses the break but not mappings (a courtesy of the kernel
// to valgrind).
TEST_P(RealBreak, GoesOnWithMappingsWhenItIsRefused) {
  in_child([] {
    const auto heap = make(growing_by(SourceKind::sbrk, 65536));
    void* const before = heap->allocate(1000, 16);
    std::memset(before, 1, 1000);
    rlimit limit;
    ASSERT_EQ(::getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = 0;
    ASSERT_EQ(::setrlimit(RLIMIT_DATA, &limit), 0);
    ASSERT_EQ(os::grow_break(4096), nullptr);
    std::vector<void*> live;
    for (int i = 0; i < 200; ++i) {
      live.push_back(heap->allocate(3000, 16));
      ASSERT_NE(live.back(), nullptr);
      std::memset(live.back(), 2, 3000);
    }
    EXPECT_EQ(static_cast<unsigned char*>(before)[999], 1);
    EXPECT_GT(heap->measures().chunks, 1U);
    heap->release(before);
    for (void* block : live) heap->release(block);
    EXPECT_TRUE(heap->is_valid());
    const std::vector<BlockView> blocks = blocks_of(*heap);
    EXPECT_EQ(bytes_in(blocks, BlockState::used), 0U);
  });
}

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
