// Tags and blocks: memory layout and size arithmetic.
#include "classic/block.h"

#include <gtest/gtest.h>

#include <cstring>

#include "classic/tagged_heap.h"

namespace ts::classic {
namespace {

TEST(BlockSize, HoldsTagAndPayloadInGranules) {
  EXPECT_EQ(block_bytes_for(0), 32U);
  EXPECT_EQ(block_bytes_for(1), 32U);
  EXPECT_EQ(block_bytes_for(24), 32U);
  EXPECT_EQ(block_bytes_for(25), 48U);
  EXPECT_EQ(block_bytes_for(40), 48U);
  for (std::size_t bytes = 0; bytes < 5000; ++bytes) {
    const std::size_t block_bytes = block_bytes_for(bytes);
    ASSERT_EQ(block_bytes % granule_bytes, 0U);
    ASSERT_GE(block_bytes, bytes + tag_bytes);
    ASSERT_GE(block_bytes, min_block_bytes);
    ASSERT_TRUE(block_bytes == min_block_bytes || block_bytes < bytes + tag_bytes + granule_bytes);
  }
}

TEST(BlockSize, RefusesWhatNoHeapCanServe) {
  EXPECT_EQ(block_bytes_for(max_block_bytes - granule_bytes), max_block_bytes);
  EXPECT_EQ(block_bytes_for(max_block_bytes - granule_bytes + 1), 0U);
  EXPECT_EQ(block_bytes_for(SIZE_MAX), 0U);
  EXPECT_EQ(block_bytes_for(SIZE_MAX - 7), 0U);
}

TEST(GoodSize, CostsNoMoreThanTheSizeAskedFor) {
  for (std::size_t bytes = 0; bytes < 2000; ++bytes) {
    const std::size_t good = TaggedPayloads::good_size(bytes);
    ASSERT_GE(good, bytes);
    ASSERT_EQ(block_bytes_for(good), block_bytes_for(bytes));
    ASSERT_NE(block_bytes_for(good + 1), block_bytes_for(bytes));
  }
  EXPECT_EQ(TaggedPayloads::good_size(SIZE_MAX), 0U);
}

TEST(Tag, KeepsItsPartsApart) {
  for (const std::uint32_t owner : {0U, 1U, max_owner}) {
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{32}, max_block_bytes}) {
      for (Tag::Flags flags = 0; flags < 16; ++flags) {
        const Tag tag{bytes, owner, flags};
        ASSERT_EQ(tag.block_bytes(), bytes);
        ASSERT_EQ(tag.owner(), owner);
        ASSERT_EQ(tag.flags(15), flags);
        ASSERT_EQ(tag.used(), (flags & Tag::used_flag) != 0);
        ASSERT_EQ(tag.previous_free(), (flags & Tag::previous_free_flag) != 0);
        ASSERT_EQ(tag.first(), (flags & Tag::first_flag) != 0);
        ASSERT_EQ(tag.cached(), (flags & Tag::cached_flag) != 0);
        for (const Tag::Flags flag :
             {Tag::used_flag, Tag::previous_free_flag, Tag::first_flag, Tag::cached_flag}) {
          ASSERT_EQ(tag.with(flag).word(), tag.word() | flag);
          ASSERT_EQ(tag.without(flag).word(), tag.word() & ~flag);
        }
      }
    }
  }
}

struct BlockInMemory : ::testing::Test {
  alignas(16) std::byte memory[512] = {};
  Block* const block = Block::at(memory + 8);
};

TEST_F(BlockInMemory, PayloadIsAlignedAndLeadsBack) {
  EXPECT_EQ(address_of(block->payload()) % min_alignment, 0U);
  EXPECT_EQ(Block::of_payload(static_cast<void*>(block->payload())), block);
  block->set_tag(Tag{96, 7, Tag::used_flag});
  EXPECT_EQ(block->payload_bytes(), 88U);
  EXPECT_FALSE(block->is_fence());
  EXPECT_EQ(block->next()->begin(), block->begin() + 96);
}

// The footer is the last word of a free block, and does not reach into the next one.
TEST_F(BlockInMemory, FooterLeadsToThePreviousBlock) {
  std::memset(memory, 0xee, sizeof memory);
  block->set_tag(Tag{96, 7, 0});
  block->write_footer();
  Block* const next = block->next();
  next->set_tag(Tag{32, 7, Tag::used_flag | Tag::previous_free_flag});
  EXPECT_EQ(next->previous(), block);
  EXPECT_EQ(block->begin()[87], std::byte{0xee});
  EXPECT_EQ(next->payload()[0], std::byte{0xee});
}

TEST_F(BlockInMemory, TagIsReplacedOnlyIfItIsTheExpectedOne) {
  const Tag old{96, 7, 0};
  const Tag fresh{96, 7, Tag::used_flag};
  block->set_tag(old);
  Tag expected = fresh;
  EXPECT_FALSE(block->replace_tag(expected, fresh));
  EXPECT_EQ(expected.word(), old.word());  // returns what it found
  EXPECT_TRUE(block->replace_tag(expected, fresh));
  EXPECT_EQ(block->tag().word(), fresh.word());
}

// ---- Requests ----

TEST(Request, SearchesForMoreOnlyWhenAlignmentNeedsIt) {
  const Request plain = Request::of(100, 16);
  EXPECT_EQ(plain.block_bytes, 112U);
  EXPECT_EQ(plain.search_bytes, 112U);
  const Request aligned = Request::of(100, 64);
  EXPECT_EQ(aligned.block_bytes, 112U);
  EXPECT_EQ(aligned.search_bytes, 112U + 64 + min_block_bytes);
}

TEST(Request, RefusesOverflow) {
  EXPECT_EQ(Request::of(SIZE_MAX, 16).search_bytes, 0U);
  EXPECT_EQ(Request::of(max_block_bytes, 16).search_bytes, 0U);
  EXPECT_NE(Request::of(max_block_bytes - 16, 16).search_bytes, 0U);
  EXPECT_EQ(Request::of(max_block_bytes - 16, 32).search_bytes, 0U);
  EXPECT_EQ(Request::of(1, max_block_bytes).search_bytes, 0U);
  EXPECT_EQ(Request::of(1, std::size_t{1} << 63).search_bytes, 0U);
}

// Wherever the block lies, the payload is aligned, the head is empty or a whole block, and the
// request fits after it.
TEST(Request, HeadBeforeAnAlignedPayloadIsNothingOrABlock) {
  for (std::size_t alignment = 16; alignment <= 4096; alignment *= 2) {
    const Request request = Request::of(100, alignment);
    for (std::uintptr_t block = 8; block < 3 * 4096; block += granule_bytes) {
      const std::size_t head_bytes = head_before_aligned(block, request);
      ASSERT_EQ((block + head_bytes + tag_bytes) % alignment, 0U);
      ASSERT_TRUE(head_bytes == 0 || head_bytes >= min_block_bytes);
      ASSERT_LE(head_bytes + request.block_bytes, request.search_bytes);
    }
  }
}

}  // namespace
}  // namespace ts::classic
