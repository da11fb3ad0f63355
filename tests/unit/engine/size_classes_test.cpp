// Size classes, exhaustively: every request and every offset of every slab.
#include "core/size_classes.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/types.h"

namespace ts::engine {
namespace {

TEST(SizeClasses, EachRequestGetsTheSmallestClassThatHoldsIt) {
  for (std::size_t bytes = 0; bytes <= max_small_bytes; ++bytes) {
    const unsigned c = class_for(bytes);
    ASSERT_GE(c, 1U);
    ASSERT_LT(c, class_count);
    ASSERT_GE(size_classes[c].block_bytes, bytes);
    for (unsigned smaller = 1; smaller < c; ++smaller)
      ASSERT_LT(size_classes[smaller].block_bytes, bytes) << "class " << c;
  }
}

TEST(SizeClasses, ARequestIsRoundedUpByAFifthAtMost) {
  for (std::size_t bytes = 128; bytes <= max_shared_bytes; ++bytes) {
    const std::size_t block_bytes = size_classes[class_for(bytes)].block_bytes;
    // An eighth to the next class, plus the block's share of the slab's unused end, at most one
    // part in 16 of the slab: 9/8 * 16/15 = 6/5.
    ASSERT_LE(block_bytes - bytes, bytes / 5 + fine_unit) << bytes;
  }
  for (std::size_t bytes = 1; bytes <= 128; ++bytes)
    ASSERT_LT(size_classes[class_for(bytes)].block_bytes - bytes, 16U);
  for (std::size_t bytes = max_shared_bytes + 1; bytes <= max_small_bytes; ++bytes)
    ASSERT_LT(size_classes[class_for(bytes)].block_bytes - bytes, page_bytes);
}

TEST(SizeClasses, SizesAreMultiplesOfTheirUnit) {
  for (unsigned c = 1; c < class_count; ++c) {
    const std::size_t bytes = size_classes[c].block_bytes;
    EXPECT_EQ(bytes % (bytes <= max_fine_bytes ? fine_unit : coarse_unit), 0U) << bytes;
    EXPECT_GE(bytes, least_class_bytes(c));
  }
}

TEST(SizeClasses, TheReciprocalDividesEachOffsetOfEachSlab) {
  for (unsigned c = 1; c < class_count; ++c) {
    const SizeClass& k = size_classes[c];
    const auto end = static_cast<std::uint32_t>(k.slab_pages * page_bytes);
    std::uint32_t number = 0;
    std::size_t in_block = 0;
    for (std::uint32_t offset = 0; offset < end; ++offset, ++in_block) {
      if (in_block == k.block_bytes) {
        ++number;
        in_block = 0;
      }
      ASSERT_EQ(number_in_slab(k, offset), number) << "class " << c << ", offset " << offset;
      ASSERT_EQ(engine::is_multiple(offset, k.reciprocal), in_block == 0)
          << "class " << c << ", offset " << offset;
    }
  }
}

TEST(SizeClasses, SlabsWasteOnePartInSixteenAndFirstOnesInFour) {
  for (unsigned c = 1; c < class_count; ++c) {
    const SizeClass& k = size_classes[c];
    const auto waste = [&](std::size_t pages) { return pages * page_bytes % k.block_bytes; };
    EXPECT_LE(waste(k.slab_pages), k.slab_pages * page_bytes / 16) << c;
    EXPECT_LE(waste(k.first_slab_pages), k.first_slab_pages * page_bytes / 4) << c;
    EXPECT_LE(k.first_slab_pages, k.slab_pages);
    EXPECT_LE(k.slab_pages, max_slab_pages);
    EXPECT_GE(blocks_in_slab(k, k.slab_pages), c < first_single_class ? 4U : 1U);
    EXPECT_GE(blocks_in_slab(k, k.first_slab_pages), 1U);
  }
}

TEST(SizeClasses, ASlabHasABitForEachBlockWithinItsRemoteFrees) {
  std::size_t most = 0;
  for (unsigned c = 1; c < class_count; ++c) {
    const SizeClass& k = size_classes[c];
    for (const std::uint32_t pages : {k.first_slab_pages, k.slab_pages}) {
      const std::size_t blocks = blocks_in_slab(k, pages);
      const std::size_t words = (blocks + 63) / 64;
      EXPECT_LE(offsetof(RemoteFrees, bits) + words * sizeof(std::uint64_t),
                pages * sizeof(RemoteFrees))
          << c;
      most = std::max(most, blocks);
    }
  }
  EXPECT_EQ(max_slab_blocks, align_up(most, 64));
}

TEST(SizeClasses, BinsAndCarvesKeepTheirBounds) {
  for (unsigned c = 1; c < class_count; ++c) {
    const SizeClass& k = size_classes[c];
    EXPECT_GE(k.bin_blocks, 1U);
    EXPECT_LE(k.bin_blocks, max_bin_blocks);
    EXPECT_TRUE(k.bin_blocks == 1 || k.bin_blocks * k.block_bytes <= bin_bytes);
    EXPECT_GE(k.wide_bin_blocks, 1U);
    EXPECT_LE(k.wide_bin_blocks, max_wide_bin_blocks);
    EXPECT_GE(k.carve_blocks, 1U);
    EXPECT_LE(k.carve_blocks, 64U);
    EXPECT_TRUE(k.carve_blocks == 1 || k.carve_blocks * k.block_bytes <= carve_bytes);
  }
}

}  // namespace
}  // namespace ts::engine
