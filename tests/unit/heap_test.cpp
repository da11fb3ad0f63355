// Promises of all 18 heaps (base/heap_like.h) that tests/property does not check against an oracle
// address by address: trimming on request, lack of memory, misuse, and the heap's own check.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "unit/clean_system.h"
#include "unit/heaps.h"

namespace ts::testing {
namespace {

class HeapTest : public HeapSuite {
 protected:
  void SetUp() override { clean_system(); }
};
INSTANTIATE_TEST_SUITE_P(, HeapTest, all_heaps(), heap_name);

TEST_P(HeapTest, RefusesImpossibleSizesWithoutAskingTheSystem) {
  for (const SourceKind kind : {SourceKind::sbrk, SourceKind::mmap}) {
    const auto heap = make(growing_by(kind));
    void* const block = heap->allocate(100, 16);
    ASSERT_NE(block, nullptr);
    fake_os::take_events();
    for (const std::size_t bytes : {max_block_bytes, max_block_bytes * 2, std::size_t{PTRDIFF_MAX},
                                    SIZE_MAX - 4096, SIZE_MAX}) {
      for (const std::size_t alignment : {std::size_t{16}, std::size_t{4096}}) {
        ASSERT_EQ(heap->allocate(bytes, alignment), nullptr);
      }
      ASSERT_FALSE(heap->resize(block, bytes));
    }
    ASSERT_EQ(heap->allocate(1, std::size_t{1} << 62), nullptr);
    EXPECT_TRUE(fake_os::take_events().empty());
    EXPECT_TRUE(heap->is_valid());
    heap->release(block);
  }
}

// ---- Returning memory ----

TEST_P(HeapTest, TrimGivesTheEndOfTheBreakBack) {
  if (is("lockfree")) GTEST_SKIP() << "lockfree never moves the break down";
  const auto heap = make(growing_by(SourceKind::sbrk));
  void* const kept = heap->allocate(large, 16);
  void* const freed = heap->allocate(1'000'000, 16);
  heap->release(freed);
  EXPECT_TRUE(heap->trim(100'000));
  EXPECT_GE(fake_os::break_bytes(), 100'000U);
  EXPECT_LE(fake_os::break_bytes(), 110'000U);
  EXPECT_TRUE(heap->is_valid());
  EXPECT_TRUE(heap->trim(0));
  EXPECT_LE(fake_os::break_bytes(), 8192U);
  EXPECT_EQ(heap->measures().segment_bytes, fake_os::break_bytes());
  heap->release(kept);
  EXPECT_TRUE(heap->trim(0));
  EXPECT_EQ(fake_os::break_bytes(), 0U);
  EXPECT_EQ(heap->measures().chunks, 0U);
  EXPECT_NE(heap->allocate(large, 16), nullptr);
  EXPECT_TRUE(heap->is_valid());
}

// The system refuses, but free chunks in this heap make room (as at an address space limit), and
// the request succeeds.
TEST_P(HeapTest, MakesRoomWhenTheSystemRefusesToGrow) {
  const auto heap = make(growing_by(SourceKind::mmap));
  std::vector<void*> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(heap->allocate(100'000, 16));
  const std::size_t limit = fake_os::mapped_bytes();
  for (void* block : blocks) heap->release(block);
  fake_os::refuse_if([limit](const fake_os::Request& request) {
    return request.call == fake_os::Call::map && fake_os::mapped_bytes() + request.bytes > limit;
  });
  void* const big = heap->allocate(4'000'000, 16);
  ASSERT_NE(big, nullptr);
  std::memset(big, 1, 4'000'000);
  EXPECT_TRUE(heap->is_valid());
  heap->release(big);
}

// Mappings are refused, but the break can move (as when a process has too many mappings): no thread
// gets per-thread state, and requests succeed or fail, but never leak the segment.
TEST_P(HeapTest, RefusedMappingsDoNotEatTheBreak) {
  const auto heap = make(growing_by(SourceKind::sbrk));
  fake_os::refuse(fake_os::Call::map);
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

// Whichever one it is: what is live keeps its contents, and all of it is free in the end.
TEST_P(HeapTest, StaysSoundWhereOneRequestIsRefused) {
  for (const SourceKind kind : {SourceKind::sbrk, SourceKind::mmap}) {
    for (unsigned refused = 0, asked = 1; refused < asked; ++refused) {
      clean_system();
      const auto heap = make(growing_by(kind));
      std::vector<std::pair<unsigned char*, std::size_t>> live;
      fake_os::refuse_nth(refused);
      for (std::size_t bytes = 24; bytes < 600'000; bytes += bytes / 6) {
        auto* const block =
            static_cast<unsigned char*>(heap->allocate(bytes, bytes % 3 == 0 ? 256 : 16));
        ASSERT_TRUE(heap->is_valid()) << "request " << refused << " is refused";
        if (block != nullptr) live.emplace_back(block, bytes);
        if (block != nullptr) std::memset(block, static_cast<int>(bytes % 251), bytes);
        if (live.empty()) continue;
        auto& [other, other_bytes] = live[bytes % live.size()];
        if (heap->resize(other, other_bytes / 2 + 1)) other_bytes = other_bytes / 2 + 1;
      }
      asked = fake_os::failable_calls();
      for (const auto& [block, bytes] : live) {
        EXPECT_TRUE(std::all_of(block, block + bytes, [&](int c) { return c == block[0]; }));
        heap->release(block);
      }
      EXPECT_TRUE(heap->is_valid());
      EXPECT_EQ(count_in(blocks_of(*heap), BlockState::used), 0U);
    }
  }
}

// What the system refuses to take back stays in use and is not lost.
TEST_P(HeapTest, GivesBackLaterWhatTheSystemRefusedToTake) {
  for (const SourceKind kind : {SourceKind::sbrk, SourceKind::mmap}) {
    const std::size_t mapped_before = fake_os::mapped_bytes();
    auto heap = make(growing_by(kind, 0, 1 << 20));
    fake_os::refuse(fake_os::Call::unmap, fake_os::Call::shrink_break);
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

// Blocks freed when there was no memory for nodes wait, and are not lost.
TEST(LockFreeTest, KeepsWhatItCanNotFileYet) {
  clean_system();
  const Buffer buffer{std::size_t{1} << 20};
  Scoped<LockFree<BestFit>> heap{buffer.config()};
  std::vector<void*> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(heap->allocate(1000, 16));
  fake_os::refuse(fake_os::Call::map);
  // A thread that has no stash and cannot get nodes frees every other block, so nothing merges.
  std::thread{[&] {
    for (std::size_t i = 0; i < blocks.size(); i += 2) heap->release(blocks[i]);
  }}.join();
  fake_os::refuse_nothing();
  for (std::size_t i = 1; i < blocks.size(); i += 2) heap->release(blocks[i]);
  EXPECT_TRUE(heap->is_valid());
  const std::vector<BlockView> left = blocks_of(*heap);
  EXPECT_EQ(bytes_in(left, BlockState::used), 0U);
  EXPECT_EQ(left.size(), heap->measures().chunks);
}

// ---- Misuse ----

class MisuseDeathTest : public HeapTest {};
INSTANTIATE_TEST_SUITE_P(, MisuseDeathTest, all_heaps(), heap_name);

constexpr const char* not_in_use = "^tsmalloc: free of a block that is not in use: 0x[0-9a-f]+\n$";

// After the block was merged with a free one after it, or before it.
TEST_P(MisuseDeathTest, DoubleFreeOfAMergedBlockAborts) {
  const Buffer buffer{65536};
  const auto heap = make(buffer.config());
  void* const a = heap->allocate(large, 16);
  void* const b = heap->allocate(large, 16);
  void* const c = heap->allocate(large, 16);
  heap->allocate(large, 16);
  heap->release(a);
  heap->release(c);
  heap->release(b);
  EXPECT_EXIT(heap->release(c), ::testing::KilledBySignal(SIGABRT), not_in_use);
  EXPECT_EXIT(heap->release(b), ::testing::KilledBySignal(SIGABRT), not_in_use);
  EXPECT_EXIT(heap->release(a), ::testing::KilledBySignal(SIGABRT), not_in_use);
}

// An address that no heap returned, with nothing recognizable there.
TEST_P(MisuseDeathTest, FreeOfAForeignPointerAborts) {
  const Buffer buffer{65536};
  const auto heap = make(buffer.config());
  alignas(16) std::byte elsewhere[64] = {};
  EXPECT_EXIT(heap->release(elsewhere + 16), ::testing::KilledBySignal(SIGABRT), not_in_use);
}

// ---- is_valid ----

class IsValid : public HeapTest {
 protected:
  void SetUp() override {
    HeapTest::SetUp();
    for (void*& block : blocks) {
      block = heap->allocate(large, 16);
      std::memset(block, 0xee, heap->usable_size(block));  // no tag looks like this
    }
    heap->release(blocks[1]);
    heap->release(blocks[3]);
    ASSERT_TRUE(heap->is_valid());
  }
  void TearDown() override { EXPECT_TRUE(heap->is_valid()) << "the test has to undo its damage"; }

  // Damages a word, expects a report, and repairs the word.
  bool is_valid_with(std::uint64_t& word, std::uint64_t damaged) {
    const std::uint64_t sound = std::exchange(word, damaged);
    const bool valid = heap->is_valid();
    word = sound;
    return valid;
  }
  static std::uint64_t& tag_of(void* payload) { return static_cast<std::uint64_t*>(payload)[-1]; }

  const Buffer buffer{65536};
  const std::unique_ptr<AnyHeap> heap = make(buffer.config());
  void* blocks[6] = {};  // used, free, used, free, used, used
};

// The lock-free heap keeps no tags of free blocks, and its trees are outside the segment.
INSTANTIATE_TEST_SUITE_P(, IsValid,
                         heaps_where([](const Cell& cell) { return cell.strategy != "lockfree"; }),
                         heap_name);

TEST_P(IsValid, SeesADamagedSize) {
  for (const int i : {0, 1, 2, 3, 4, 5}) {
    std::uint64_t& tag = tag_of(blocks[i]);
    EXPECT_FALSE(is_valid_with(tag, tag + 16)) << "block " << i;
    EXPECT_FALSE(is_valid_with(tag, tag - 16)) << "block " << i;
    EXPECT_FALSE(is_valid_with(tag, tag & 0xf)) << "size zero, block " << i;
    EXPECT_FALSE(is_valid_with(tag, (tag & ~0xffff0ULL) | 16)) << "tiny size, block " << i;
  }
}

TEST_P(IsValid, SeesADamagedFooter) {
  std::uint64_t& footer = (&tag_of(blocks[2]))[-1];
  ASSERT_EQ(footer, block_bytes_for(large));
  EXPECT_FALSE(is_valid_with(footer, footer + 16));
  EXPECT_FALSE(is_valid_with(footer, 32));
}

TEST_P(IsValid, SeesAWrongOwner) {
  std::uint64_t& tag = tag_of(blocks[1]);
  EXPECT_FALSE(is_valid_with(tag, tag + (std::uint64_t{1} << 44)));
}

TEST_P(IsValid, SeesAWrongPreviousFree) {
  std::uint64_t& behind_free = tag_of(blocks[2]);
  std::uint64_t& behind_used = tag_of(blocks[5]);
  EXPECT_FALSE(is_valid_with(behind_used, behind_used | Tag::previous_free_flag));
  // Where owners can change, the block may be unknown.
  if (!is("nolock")) {
    EXPECT_FALSE(is_valid_with(behind_free, behind_free & ~Tag::previous_free_flag));
  }
}

TEST_P(IsValid, SeesALostBlockInTheTree) {
  auto* const links = static_cast<std::uint64_t*>(blocks[1]);
  auto* const more = static_cast<std::uint64_t*>(blocks[3]);
  bool seen = false;
  for (std::uint64_t* link : {links, links + 1, more, more + 1}) {
    if (*link != 0) seen = !is_valid_with(*link, 0) || seen;
  }
  EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace ts::testing
