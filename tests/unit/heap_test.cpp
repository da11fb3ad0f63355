// The promises of all 18 heaps (base/heap_like.h), whatever their strategy and fit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "unit/clean_system.h"
#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

// Blocks of more than the cached strategy caches, so that all strategies treat them alike.
constexpr std::size_t large = 2000;

class HeapTest : public HeapSuite {
 protected:
  void SetUp() override { clean_system(); }

  // All blocks, in the order of addresses.
  static std::vector<BlockView> sorted_blocks(AnyHeap& heap) {
    std::vector<BlockView> blocks = blocks_of(heap);
    std::sort(blocks.begin(), blocks.end(), [](const BlockView& a, const BlockView& b) {
      return address_of(a.payload) < address_of(b.payload);
    });
    return blocks;
  }
};
INSTANTIATE_TEST_SUITE_P(, HeapTest, all_heaps(), heap_name);

TEST_P(HeapTest, AlignsUpToAMebibyte) {
  const Buffer buffer{std::size_t{64} << 20, 8};
  const auto heap = make(buffer.config());
  std::vector<void*> live;
  for (std::size_t alignment = 16; alignment <= (std::size_t{1} << 20); alignment *= 2) {
    for (const std::size_t bytes : {0U, 1U, 24U, 25U, 100U, 1000U, 70'000U}) {
      auto* const block = static_cast<std::byte*>(heap->allocate(bytes, alignment));
      ASSERT_NE(block, nullptr);
      ASSERT_EQ(address_of(block) % alignment, 0U) << alignment << ", " << bytes;
      ASSERT_GE(heap->usable_size(block), bytes);
      std::memset(block, 0x5a, heap->usable_size(block));
      live.push_back(block);
      if (live.size() % 3 == 0) {
        heap->release(live[live.size() / 2]);
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(live.size() / 2));
      }
    }
  }
  EXPECT_TRUE(heap->is_valid());
  const std::vector<BlockView> blocks = blocks_of(*heap);
  EXPECT_EQ(count_in(blocks, BlockState::used), live.size());
  for (void* block : live) heap->release(block);
  EXPECT_EQ(count_in(blocks_of(*heap), BlockState::used), 0U);
}

TEST_P(HeapTest, ServesZeroBytesByABlockOfItsOwn) {
  const Buffer buffer{65536};
  const auto heap = make(buffer.config());
  std::set<void*> blocks;
  for (int i = 0; i < 100; ++i) {
    void* const block = heap->allocate(0, 16);
    ASSERT_NE(block, nullptr);
    ASSERT_TRUE(blocks.insert(block).second);
    ASSERT_GE(heap->usable_size(block), min_block_bytes - tag_bytes);
  }
  for (void* block : blocks) heap->release(block);
}

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

TEST_P(HeapTest, ResizesInPlaceWhereItCan) {
  const Buffer buffer{65536};
  const auto heap = make(buffer.config());
  heap->release(heap->allocate(32'000, 16));  // one large block to cut from
  auto* const a = static_cast<unsigned char*>(heap->allocate(large, 16));
  auto* const b = static_cast<unsigned char*>(heap->allocate(large, 16));
  auto* const c = static_cast<unsigned char*>(heap->allocate(large, 16));
  ASSERT_EQ(b, a + block_bytes_for(large)) << "the test needs neighbours";
  ASSERT_EQ(c, b + block_bytes_for(large));
  const std::size_t full = heap->usable_size(a);
  std::memset(a, 1, full);
  std::memset(c, 3, full);

  EXPECT_FALSE(heap->resize(a, full + 1)) << "grew over a block in use";
  EXPECT_EQ(heap->usable_size(a), full);
  EXPECT_TRUE(heap->resize(a, full));  // as large as it is

  // Shrinking frees the tail; a tail too small for a block stays.
  EXPECT_TRUE(heap->resize(a, full - 16));
  EXPECT_EQ(heap->usable_size(a), full);
  EXPECT_TRUE(heap->resize(a, 1200));
  EXPECT_EQ(heap->usable_size(a), block_bytes_for(1200) - tag_bytes);

  heap->release(b);
  // Now there is room of exactly one block, and what was cut from `a`, behind it.
  EXPECT_FALSE(heap->resize(a, full + block_bytes_for(large) + 1));
  EXPECT_EQ(heap->usable_size(a), block_bytes_for(1200) - tag_bytes);
  EXPECT_TRUE(heap->resize(a, full + 500));
  EXPECT_GE(heap->usable_size(a), full + 500);
  EXPECT_TRUE(heap->resize(a, full + block_bytes_for(large)));  // all there is
  EXPECT_EQ(heap->usable_size(a), full + block_bytes_for(large));
  for (std::size_t i = 0; i < 1200; ++i) ASSERT_EQ(a[i], 1);
  for (std::size_t i = 0; i < full; ++i) ASSERT_EQ(c[i], 3);
  EXPECT_TRUE(heap->is_valid());
  heap->release(a);
  heap->release(c);
  EXPECT_TRUE(heap->is_valid());
}

// Blocks, chunk headers and fences are all that a segment consists of.
TEST_P(HeapTest, WalkCoversEveryByte) {
  for (const SourceKind kind : {SourceKind::sbrk, SourceKind::mmap}) {
    const auto heap = make(growing_by(kind, 8192));
    std::vector<void*> live;
    for (std::size_t i = 0; i < 200; ++i) live.push_back(heap->allocate(i * 13 % 3000, 16));
    for (std::size_t i = 0; i < live.size(); i += 3) heap->release(live[i]);
    std::size_t bytes = 0;
    const BlockView* previous = nullptr;
    std::size_t adjacent = 0;
    const std::vector<BlockView> blocks = sorted_blocks(*heap);
    for (const BlockView& block : blocks) {
      if (previous != nullptr) {
        const std::uintptr_t end = address_of(previous->payload) + previous->bytes + tag_bytes;
        ASSERT_LE(end, address_of(block.payload)) << "blocks overlap";
        adjacent += end == address_of(block.payload) ? 1 : 0;
      }
      bytes += block.bytes + tag_bytes;
      previous = &block;
    }
    const HeapMeasures measures = heap->measures();
    EXPECT_EQ(adjacent, blocks.size() - measures.chunks);
    EXPECT_EQ(bytes + measures.chunks * Chunk::overhead_bytes, measures.segment_bytes);
    EXPECT_EQ(bytes_in(blocks, BlockState::cached), measures.cached_bytes);
    EXPECT_EQ(bytes_in(blocks, BlockState::free) + bytes_in(blocks, BlockState::cached),
              measures.free_bytes);
    EXPECT_EQ(count_in(blocks, BlockState::free) + count_in(blocks, BlockState::cached),
              measures.free_blocks);
  }
}

TEST_P(HeapTest, WalkStopsWhenToldTo) {
  const Buffer buffer{65536};
  const auto heap = make(buffer.config());
  for (int i = 0; i < 10; ++i) heap->allocate(large, 16);
  int visited = 0;
  const auto stop_at_three = [](const BlockView&, void* count) {
    return ++*static_cast<int*>(count) < 3;
  };
  EXPECT_FALSE(heap->walk(stop_at_three, &visited));
  EXPECT_EQ(visited, 3);
  EXPECT_NE(heap->allocate(large, 16), nullptr) << "a lock was left locked";
}

TEST_P(HeapTest, DestroyGivesEverythingBack) {
  for (const SourceKind kind : {SourceKind::sbrk, SourceKind::mmap}) {
    clean_system();
    Worker other;
    {
      // So that both threads have their tables of states already.
      const Buffer buffer{65536};
      Scoped<Arenas<BestFit>> any{buffer.config()};
      any->release(any->allocate(1, 16));
      other.run([&] { any->release(any->allocate(1, 16)); });
    }
    const std::size_t mapped = fake_os::mapped_bytes();
    auto heap = make(growing_by(kind, 16384));
    const auto use = [&] {
      for (std::size_t i = 0; i < 300; ++i) {
        void* const block = heap->allocate(i * 37 % 5000, 16);
        ASSERT_NE(block, nullptr);
        if (i % 2 == 0) heap->release(block);
      }
    };
    use();
    other.run(use);
    heap.reset();
    EXPECT_EQ(fake_os::mapped_bytes(), mapped);
    EXPECT_EQ(fake_os::break_bytes(), 0U);
  }
}

// ---- Giving memory back ----

TEST_P(HeapTest, TrimGivesFreeMappingsBack) {
  const auto heap = make(growing_by(SourceKind::mmap, 65536));
  void* const kept = heap->allocate(large, 16);
  const std::size_t before = fake_os::mapped_bytes();
  std::vector<void*> blocks;
  for (int i = 0; i < 50; ++i) blocks.push_back(heap->allocate(60'000, 16));
  std::memset(kept, 1, large);
  for (void* block : blocks) heap->release(block);
  EXPECT_TRUE(heap->trim(0));
  EXPECT_EQ(heap->measures().chunks, 1U);
  // A strategy may keep a few nodes of its own.
  EXPECT_LE(fake_os::mapped_bytes(), before + (std::size_t{2} << 20));
  EXPECT_EQ(static_cast<unsigned char*>(kept)[large - 1], 1);
  EXPECT_TRUE(heap->is_valid());
  EXPECT_NE(heap->allocate(60'000, 16), nullptr);
}

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

// Free memory between blocks in use stays, but its pages go.
TEST_P(HeapTest, TrimDiscardsThePagesOfFreeBlocks) {
  const auto heap = make(growing_by(SourceKind::sbrk));
  void* const freed = heap->allocate(1'000'000, 16);
  auto* const kept = static_cast<unsigned char*>(heap->allocate(large, 16));
  std::memset(kept, 1, large);
  heap->release(freed);
  ASSERT_EQ(fake_os::discarded_bytes(), 0U);
  EXPECT_TRUE(heap->trim(0));
  EXPECT_GE(fake_os::discarded_bytes(), 990'000U);
  for (std::size_t i = 0; i < large; ++i) ASSERT_EQ(kept[i], 1);
  EXPECT_TRUE(heap->is_valid());
  EXPECT_EQ(heap->allocate(1'000'000, 16), freed);
}

TEST_P(HeapTest, GivesTheEndBackByItselfAboveTheThreshold) {
  if (is("lockfree")) GTEST_SKIP() << "lockfree never moves the break down";
  const auto heap = make(growing_by(SourceKind::sbrk, 0, std::size_t{4} << 20));
  void* const kept = heap->allocate(large, 16);
  void* const small = heap->allocate(std::size_t{3} << 20, 16);
  heap->release(small);
  EXPECT_GT(fake_os::break_bytes(), std::size_t{3} << 20) << "given back below the threshold";
  void* const big = heap->allocate(std::size_t{5} << 20, 16);
  heap->release(big);
  EXPECT_LT(fake_os::break_bytes(), trim_keep_bytes + 16384);
  EXPECT_GE(fake_os::break_bytes(), trim_keep_bytes);
  EXPECT_TRUE(heap->is_valid());
  heap->release(kept);
}

// As a block that realloc moves into a longer one again and again: no freed mapping has room for
// the next one.
TEST_P(HeapTest, KeepsNoMoreFreeMappingsThanTheThreshold) {
  constexpr std::size_t threshold = std::size_t{4} << 20;
  const auto heap = make(growing_by(SourceKind::mmap, 0, threshold));
  void* const kept = heap->allocate(large, 16);
  std::size_t bytes = std::size_t{1} << 20;
  void* block = heap->allocate(bytes, 16);
  const std::size_t before = fake_os::mapped_bytes();
  for (int i = 0; i < 40; ++i) {
    bytes += 65536;
    void* const longer = heap->allocate(bytes, 16);
    ASSERT_NE(longer, nullptr);
    heap->release(block);
    block = longer;
    ASSERT_LE(fake_os::mapped_bytes(), before + threshold + 3 * bytes);
  }
  heap->release(block);
  EXPECT_TRUE(heap->is_valid());
  const HeapMeasures measures = heap->measures();
  EXPECT_LE(measures.free_bytes, threshold);
  EXPECT_GE(measures.free_bytes, threshold / 4) << "all of it was given back";
  heap->release(kept);
}

// The system refuses; chunks that lie free in this heap make room (an end of growth by address
// space, say), and the request is served.
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

// ---- Misuse ----

class MisuseDeathTest : public HeapTest {};
INSTANTIATE_TEST_SUITE_P(, MisuseDeathTest, all_heaps(), heap_name);

constexpr const char* not_in_use = "^tsmalloc: free of a block that is not in use: 0x[0-9a-f]+\n$";

TEST_P(MisuseDeathTest, DoubleFreeAborts) {
  const Buffer buffer{65536};
  const auto heap = make(buffer.config());
  void* const a = heap->allocate(large, 16);
  heap->allocate(large, 16);
  heap->release(a);
  EXPECT_EXIT(heap->release(a), ::testing::KilledBySignal(SIGABRT), not_in_use);
}

// After the block was merged with a free one behind it, or before it.
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

// An address that no heap handed out, and that looks like nothing.
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
      std::memset(block, 0xee, heap->usable_size(block));  // whole blocks, and no tag looks so
    }
    heap->release(blocks[1]);
    heap->release(blocks[3]);
    ASSERT_TRUE(heap->is_valid());
  }
  void TearDown() override { EXPECT_TRUE(heap->is_valid()) << "the test has to undo its damage"; }

  // Damages a word, asks, and repairs it.
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

// The lock-free heap keeps no tags of free blocks, and its trees outside of the segment.
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
  // Where owners can change, a block may have forgotten.
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
