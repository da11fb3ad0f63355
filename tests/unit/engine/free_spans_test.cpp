// Lists of free spans of any length. (page_heap_test.cpp uses them at random.)
#include "core/free_spans.h"

#include <gtest/gtest.h>

namespace ts::engine {
namespace {

struct FreeSpanLists : ::testing::Test {
  void insert(std::size_t i, std::size_t pages) {
    spans[i].pages = static_cast<std::uint32_t>(pages);
    spans[i].state = SpanState::free;
    free_spans.insert(&spans[i]);
  }
  void check() {
    const Fault fault = free_spans.find_fault(false);
    ASSERT_FALSE(fault) << fault.equation;
  }

  Span spans[18];
  FreeSpans free_spans;
};

TEST_F(FreeSpanLists, NothingIsFoundInEmptyLists) {
  for (unsigned shift = 0; shift < 30; ++shift)
    EXPECT_EQ(free_spans.find((std::size_t{1} << shift)), nullptr);
  EXPECT_EQ(free_spans.longest(), nullptr);
  check();
}

TEST_F(FreeSpanLists, ASpanIsFoundByEachShorterRequestAtEachBoundaryOfLists) {
  for (unsigned shift = 0; shift < 30; ++shift) {
    for (std::size_t eighth = 8; eighth < 16; ++eighth) {
      for (const int by : {-1, 0, 1}) {
        const std::size_t length = (eighth << shift >> 3) + static_cast<std::size_t>(by);
        if (length == 0 || length >= std::size_t{1} << 30) continue;
        insert(0, length);
        ASSERT_EQ(free_spans.find(length), &spans[0]) << length;
        ASSERT_EQ(free_spans.find(1), &spans[0]) << length;
        ASSERT_EQ(free_spans.find(length + 1), nullptr) << length;
        ASSERT_EQ(free_spans.longest(), &spans[0]);
        check();
        free_spans.remove(&spans[0]);
        check();
      }
    }
  }
}

TEST_F(FreeSpanLists, OnlySixteenOfTheOwnListAreLookedAt) {
  insert(0, 127);  // 120 to 127 share a list, last in, first out
  for (std::size_t i = 1; i <= 15; ++i) insert(i, 120);
  EXPECT_EQ(free_spans.find(121), &spans[0]);
  insert(16, 120);
  EXPECT_EQ(free_spans.find(121), nullptr);
  insert(17, 128);
  EXPECT_EQ(free_spans.find(121), &spans[17]);
}

}  // namespace
}  // namespace ts::engine
