// Lists of free spans against a multiset of lengths.
#include "core/free_spans.h"

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace ts::engine {
namespace {

// The order of the lists: exact up to 63 pages, then by the three bits after the leading one.
unsigned list_rank(std::size_t pages) {
  if (pages < 64) return static_cast<unsigned>(pages);
  const auto width = static_cast<unsigned>(std::bit_width(pages));
  return 64 * (width - 6) + static_cast<unsigned>(pages >> (width - 4) & 7);
}

struct FreeSpanLists : ::testing::Test {
  static constexpr std::size_t span_count = 400;

  void insert(std::size_t i, std::size_t pages) {
    spans[i].pages = static_cast<std::uint32_t>(pages);
    spans[i].state = SpanState::free;
    free_spans.insert(&spans[i]);
    lengths.insert(pages);
    is_in[i] = true;
    total += pages;
  }
  void remove(std::size_t i) {
    free_spans.remove(&spans[i]);
    lengths.erase(lengths.find(spans[i].pages));
    is_in[i] = false;
    total -= spans[i].pages;
  }

  void check_find(std::size_t pages) {
    const Span* const found = free_spans.find(pages);
    const unsigned own = list_rank(pages);
    std::size_t in_own = 0;
    std::size_t fitting = 0;
    unsigned next = ~0U;
    for (const std::size_t length : lengths) {
      in_own += list_rank(length) == own ? 1 : 0;
      fitting += list_rank(length) == own && length >= pages ? 1 : 0;
      if (list_rank(length) > own) next = std::min(next, list_rank(length));
    }
    if (found == nullptr) {
      ASSERT_EQ(next, ~0U) << "a longer list has a span of at least " << pages;
      ASSERT_TRUE(fitting == 0 || in_own > 16);
      return;
    }
    ASSERT_TRUE(is_in[static_cast<std::size_t>(found - spans.get())]);
    ASSERT_GE(found->pages, pages);
    // Good fit: from the request's own list, or from the next one that is not empty.
    if (fitting != 0 && in_own <= 16) {
      ASSERT_EQ(list_rank(found->pages), own);
    } else {
      ASSERT_TRUE(list_rank(found->pages) == own || list_rank(found->pages) == next);
    }
  }

  void check_all() {
    const Fault fault = free_spans.find_fault(false);
    ASSERT_FALSE(fault) << fault.equation;
    ASSERT_EQ(free_spans.pages(), total);
    const Span* const longest = free_spans.longest();
    ASSERT_EQ(longest == nullptr, lengths.empty());
    if (longest != nullptr) {
      ASSERT_EQ(list_rank(longest->pages), list_rank(*lengths.rbegin()));
    }
    std::size_t visited = 0;
    for (const Span* span = longest; span != nullptr; ++visited) {
      const Span* const next = free_spans.next_shorter(span);
      ASSERT_TRUE(next == nullptr || list_rank(next->pages) <= list_rank(span->pages));
      span = next;
    }
    ASSERT_EQ(visited, lengths.size());
  }

  std::unique_ptr<Span[]> spans{new Span[span_count]};
  bool is_in[span_count] = {};
  FreeSpans free_spans;
  std::multiset<std::size_t> lengths;
  std::size_t total = 0;
};

TEST_F(FreeSpanLists, NothingIsFoundInEmptyLists) {
  for (unsigned shift = 0; shift < 30; ++shift)
    EXPECT_EQ(free_spans.find((std::size_t{1} << shift)), nullptr);
  EXPECT_EQ(free_spans.longest(), nullptr);
  check_all();
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
        check_all();
        remove(0);
        check_all();
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

TEST_F(FreeSpanLists, RandomInsertionsAndRemovals) {
  std::mt19937 random{7};
  for (int step = 0; step < 20000 / TS_TEST_SLOWNESS; ++step) {
    const std::size_t i = random() % span_count;
    if (is_in[i]) {
      remove(i);
    } else {
      const std::size_t width = random() % 29 + 1;
      insert(i, (random() % (std::size_t{1} << width)) + 1);
    }
    check_find((random() % (std::size_t{1} << (random() % 29 + 1))) + 1);
    if (step % 16 == 0) check_all();
    if (HasFatalFailure()) return;
  }
  for (std::size_t i = 0; i < span_count; ++i) {
    if (is_in[i]) remove(i);
  }
  check_all();
}

}  // namespace
}  // namespace ts::engine
