// Every call of the system that can fail, failing: a heap returns null, loses nothing that it has,
// and works again as soon as the system does.
#include <gtest/gtest.h>

#include <cstring>

#include "unit/clean_system.h"
#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

class OsFailure : public HeapSuite {
 protected:
  void SetUp() override { clean_system(); }

  struct Filled {
    unsigned char* begin;
    std::size_t bytes;
    int pattern;
  };

  // One thread's part of the scenario: all kinds of requests, each of which may fail.
  static void use(AnyHeap& heap, std::vector<Filled>& live) {
    const auto allocate = [&](std::size_t bytes, std::size_t alignment) {
      auto* const block = static_cast<unsigned char*>(heap.allocate(bytes, alignment));
      if (block == nullptr) return;
      ASSERT_EQ(address_of(block) % alignment, 0U);
      ASSERT_GE(heap.usable_size(block), bytes);
      const int pattern = static_cast<int>(live.size() % 200) + 1;
      std::memset(block, pattern, bytes);
      live.push_back({block, bytes, pattern});
    };
    for (int i = 0; i < 4; ++i) allocate(100, 16);
    allocate(5000, 16);
    allocate(200'000, 16);
    allocate(3000, 4096);
    if (!live.empty()) {
      if (heap.resize(live.front().begin, 3000)) {
        live.front().bytes = 3000;
        std::memset(live.front().begin, live.front().pattern, 3000);
      }
      heap.release(live.back().begin);
      live.pop_back();
    }
    heap.trim(0);
    for (int i = 0; i < 20; ++i) allocate(static_cast<std::size_t>(i) * 70, 16);
  }

  static void expect_intact(const std::vector<Filled>& live) {
    for (const Filled& block : live) {
      for (std::size_t i = 0; i < block.bytes; ++i) ASSERT_EQ(block.begin[i], block.pattern);
    }
  }

  // Two threads use a heap while `refuse` is in force; afterwards the heap must be whole.
  template <class Refuse>
  void survive(const HeapConfig& config, Refuse refuse) {
    const std::size_t broken_before = fake_os::break_bytes();
    std::vector<Filled> live;
    {
      // New threads each time: their first use of a heap asks the system for most.
      Worker first;
      Worker second;
      const auto heap = make(config);
      refuse();
      first.run([&] { use(*heap, live); });
      second.run([&] { use(*heap, live); });
      fake_os::refuse_nothing();
      expect_intact(live);
      ASSERT_TRUE(heap->is_valid());

      // It works again, in both threads, also where it failed before.
      for (Worker* worker : {&first, &second}) {
        worker->run([&] {
          for (const std::size_t bytes : {100U, 5000U, 200'000U}) {
            void* const block = heap->allocate(bytes, 16);
            ASSERT_NE(block, nullptr) << bytes;
            heap->release(block);
          }
        });
      }
      // One thread frees what the other allocated, too.
      first.run([&] {
        for (const Filled& block : live) heap->release(block.begin);
      });
      ASSERT_TRUE(heap->is_valid());
      const std::vector<BlockView> blocks = blocks_of(*heap);
      EXPECT_EQ(bytes_in(blocks, BlockState::used), 0U) << "memory was lost";
      const HeapMeasures measures = heap->measures();
      EXPECT_EQ(measures.free_bytes + measures.chunks * Chunk::overhead_bytes,
                measures.segment_bytes);
    }
    EXPECT_EQ(fake_os::break_bytes(), broken_before);
  }
};
INSTANTIATE_TEST_SUITE_P(, OsFailure, all_heaps(), heap_name);

// The first call fails, then the second, and so on, until no call is left to fail.
TEST_P(OsFailure, OfAnyOneCallIsSurvived) {
  for (const SourceKind kind : {SourceKind::sbrk, SourceKind::mmap}) {
    unsigned n = 0;
    do {
      SCOPED_TRACE("call " + std::to_string(n) + (kind == SourceKind::sbrk ? " sbrk" : " mmap"));
      ASSERT_LT(n, 1000U);
      survive(growing_by(kind), [&] { fake_os::refuse_nth(n); });
      if (HasFatalFailure()) return;
    } while (n++ < fake_os::failable_calls());
    EXPECT_GT(n, 5U);
  }
}

// From some call on, nothing is to be had any more.
TEST_P(OsFailure, OfAllCallsFromSomeOneOnIsSurvived) {
  for (const SourceKind kind : {SourceKind::sbrk, SourceKind::mmap}) {
    for (unsigned n = 0; n < 40; ++n) {
      SCOPED_TRACE("from call " + std::to_string(n));
      survive(growing_by(kind), [&] {
        fake_os::refuse_nth(0);  // counts from here
        fake_os::refuse_if([n](const fake_os::Request& request) {
          return fake_os::can_fail(request.call) && fake_os::failable_calls() >= n;
        });
      });
      if (HasFatalFailure()) return;
    }
  }
}

// Mappings are refused, the break is not (as when a process has too many mappings): no thread gets
// a state of its own, and requests are served, or fail, but never eat up the segment.
TEST_P(OsFailure, OfAllMappingsDoesNotEatTheBreak) {
  survive(growing_by(SourceKind::sbrk), [&] {
    fake_os::refuse_if(
        [](const fake_os::Request& request) { return request.call == fake_os::Call::map; });
  });
  const auto heap = make(growing_by(SourceKind::sbrk));
  fake_os::refuse_if(
      [](const fake_os::Request& request) { return request.call == fake_os::Call::map; });
  for (int i = 0; i < 10; ++i) {
    void* const block = heap->allocate(100'000, 16);
    if (block != nullptr) heap->release(block);
  }
  EXPECT_LE(heap->measures().segment_bytes, 2'000'000U);
  fake_os::refuse_nothing();
  void* const block = heap->allocate(100'000, 16);
  EXPECT_NE(block, nullptr);
  heap->release(block);
}

// What the system does not take back stays in use, and is not forgotten.
TEST_P(OsFailure, ToTakeMemoryBackIsSurvived) {
  for (const SourceKind kind : {SourceKind::sbrk, SourceKind::mmap}) {
    const std::size_t mapped_before = fake_os::mapped_bytes();
    auto heap = make(growing_by(kind, 0, 1 << 20));
    fake_os::refuse_if([](const fake_os::Request& request) {
      return request.call == fake_os::Call::unmap || request.call == fake_os::Call::shrink_break;
    });
    for (int i = 0; i < 3; ++i) {
      auto* const big = static_cast<unsigned char*>(heap->allocate(5 << 20, 16));
      ASSERT_NE(big, nullptr);
      std::memset(big, 1, 5 << 20);
      heap->release(big);
      heap->trim(0);
      ASSERT_TRUE(heap->is_valid());
    }
    fake_os::refuse_nothing();
    heap.reset();
    // Threads keep tables of their own.
    EXPECT_LT(fake_os::mapped_bytes(), mapped_before + (1 << 20));
  }
}

}  // namespace
}  // namespace ts::testing
