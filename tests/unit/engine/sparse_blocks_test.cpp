// Large blocks touched only at their beginning, on a system that reports the touched pages the test
// dictates.
#include <cstring>

#include "core/large_memory.h"
#include "core/page_heap.h"
#include "unit/engine/fresh_engine.h"
#include "unit/engine/page_heap_access.h"

namespace ts::testing {
namespace {

using engine::PageHeapTest;
using fake_os::Call;
using fake_os::Event;

constexpr std::size_t mebibyte = std::size_t{1} << 20;
constexpr std::size_t bytes = 20 * mebibyte;

// A thread whose large blocks are touched, so the system reports, in this many of the checked
// pages.
struct Blocks {
  engine::ThreadHeap& heap = make_heap();
  As as{heap};
  engine::Engine engine;
  std::size_t touched = 0;
  unsigned looks = 0;

  Blocks() {
    fake_os::answers.touched_pages = [this](const std::byte*, std::size_t, std::size_t n) {
      if (n != 4) return std::size_t{0};  // huge_page_probe.cpp
      ++looks;
      return touched;
    };
    allocate(128 * mebibyte);  // so that no purge is due
  }

  std::byte* allocate(std::size_t size = bytes) {
    auto* const p = static_cast<std::byte*>(engine.allocate(size, without_colour));
    EXPECT_NE(p, nullptr);
    return p;
  }
  // What the free purged.
  static std::vector<Event> release_block(std::byte* p) {
    fake_os::take_events();
    release(p);
    std::vector<Event> discards;
    for (const Event& event : fake_os::take_events()) {
      if (event.call == Call::discard && event.begin != nullptr) discards.push_back(event);
    }
    EXPECT_FALSE(page_heap.find_fault());
    return discards;
  }
  // Allocates and frees a block this often; returns how many of the frees purged memory.
  unsigned discards_of(unsigned times) {
    unsigned count = 0;
    for (unsigned i = 0; i < times; ++i) count += release_block(allocate()).empty() ? 0 : 1;
    return count;
  }
};

bool has_longer_os_pages() { return pages_per_os_page() != 1; }

TS_ENGINE_TEST(SparseBlocks, GiveBackWhatLiesBehindTheFirstEighth) {
  if (has_longer_os_pages()) return;
  Blocks b;
  std::byte* const p = b.allocate();
  b.allocate(page_bytes * 4);  // so that it is not the last span
  std::memset(p, 1, bytes);
  const std::vector<Event> discards = Blocks::release_block(p);
  ASSERT_EQ(discards.size(), 1U);
  EXPECT_EQ(discards[0].begin, p + bytes / 8);
  EXPECT_EQ(discards[0].bytes, bytes / 8 * 7);
  EXPECT_EQ(PageHeapTest::dirty().pages(), bytes / 8 / page_bytes);
  EXPECT_EQ(PageHeapTest::clean().pages(), bytes / 8 * 7 / page_bytes);
  // The next one starts where memory is touched, even if it is about as long.
  std::byte* const q = b.allocate(bytes * 7 / 8);
  EXPECT_EQ(q, p);
  EXPECT_EQ(Blocks::release_block(q).size(), 1U);
  EXPECT_EQ(b.allocate(), p);
  EXPECT_EQ(p[0], std::byte{1});
  EXPECT_EQ(p[bytes / 8], std::byte{0});
}

TS_ENGINE_TEST(SparseBlocks, FilledOnesStayDirtyAndAreLookedAtOnceInSixteen) {
  Blocks b;
  b.touched = 4;
  EXPECT_EQ(b.discards_of(160), 0U);
  EXPECT_EQ(b.looks, has_longer_os_pages() ? 0U : 10U);
  EXPECT_GE(PageHeapTest::dirty().pages(), bytes / page_bytes);
}

TS_ENGINE_TEST(SparseBlocks, StayDirtyUnderASystemThatTellsNothing) {
  Blocks b;
  b.touched = os::untold;
  EXPECT_EQ(b.discards_of(40), 0U);
}

TS_ENGINE_TEST(SparseBlocks, AreLookedAtEachAtFirstAndThenOneInEight) {
  if (has_longer_os_pages()) return;
  Blocks b;
  EXPECT_EQ(b.discards_of(17), 17U);
  EXPECT_EQ(b.looks, 17U);
  EXPECT_EQ(b.discards_of(80), 80U);
  EXPECT_EQ(b.looks, 27U);
}

TS_ENGINE_TEST(SparseBlocks, OneTouchedPageOfFourIsNoFillingAmongThem) {
  if (has_longer_os_pages()) return;
  for (const unsigned before : {0U, 1U, 20U}) {
    for (const std::size_t touched : {1U, 2U}) {
      in_child([before, touched] {
        Blocks b;
        EXPECT_EQ(b.discards_of(before), before);
        b.touched = touched;
        b.looks = 0;
        unsigned discarded = 0;
        while (b.looks == 0) discarded = b.discards_of(1);
        EXPECT_EQ(discarded, touched == 1 && before != 0 ? 1U : 0U);
      });
    }
  }
}

TS_ENGINE_TEST(SparseBlocks, FilledOnesAfterThemSoonStayDirty) {
  if (has_longer_os_pages()) return;
  Blocks b;
  b.discards_of(40);
  b.touched = 4;
  EXPECT_LE(b.discards_of(200), 7U) << "as many as pass before the next look";
  // And the other way round.
  b.touched = 0;
  EXPECT_GE(b.discards_of(40), 40U - 15U);
}

TS_ENGINE_TEST(SparseBlocks, SayNothingOfOtherLengths) {
  if (has_longer_os_pages()) return;
  Blocks b;
  b.discards_of(40);
  b.touched = 4;
  EXPECT_TRUE(Blocks::release_block(b.allocate(2 * bytes)).empty());
  EXPECT_TRUE(engine::are_sparse(bytes / page_bytes));
  EXPECT_FALSE(engine::are_sparse(2 * bytes / page_bytes));
  EXPECT_FALSE(engine::are_sparse(bytes / 2 / page_bytes));
  // A shorter one is not checked either.
  b.looks = 0;
  b.touched = 0;
  EXPECT_TRUE(Blocks::release_block(b.allocate(4 * mebibyte - page_bytes)).empty());
  EXPECT_EQ(b.looks, 0U);
}

TS_ENGINE_TEST(SparseBlocks, StayDirtyWhereTheSystemTakesNothingBack) {
  if (has_longer_os_pages()) return;
  Blocks b;
  std::byte* const p = b.allocate();
  fake_os::refuse(Call::discard);
  EXPECT_TRUE(Blocks::release_block(p).empty());
  EXPECT_EQ(PageHeapTest::dirty().pages(), bytes / page_bytes);
  EXPECT_EQ(PageHeapTest::clean().pages(), 0U);
}

TS_ENGINE_TEST(SparseBlocks, AreJoinedWithinAHardLimit) {
  if (has_longer_os_pages()) return;
  Blocks b;
  std::byte* const p = b.allocate();
  std::byte* const other = b.allocate(page_bytes * 4);
  Blocks::release_block(p);
  const std::size_t limit = page_heap.touched_pages() * page_bytes + bytes / 2;
  page_heap.limit(engine::PageHeap::no_limit, limit);
  EXPECT_EQ(b.engine.allocate(bytes, without_colour), nullptr);
  EXPECT_LE(page_heap.touched_pages() * page_bytes, limit);
  page_heap.limit(engine::PageHeap::no_limit, engine::PageHeap::no_limit);
  EXPECT_NE(b.allocate(), nullptr);
  release(other);
}

}  // namespace
}  // namespace ts::testing
