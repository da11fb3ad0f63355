// Records to events: what belongs together, and what makes no sense.
#include "record/collector/books.h"

#include <gtest/gtest.h>

#include "kept_events.h"

namespace ts::record {
namespace {

using trace::Event;
using trace::Kind;

constexpr std::uint64_t here = 0x1000;
constexpr std::uint64_t there = 0x2000;

class BooksTest : public testing::Test {
 protected:
  BooksTest() : books{sink, sink.begin_image({})} {}

  void add(RawKind kind, std::uint64_t address, std::uint64_t size = 0, std::uint32_t thread = 0) {
    books.add(
        {.kind = kind, .thread = thread, .ticket = ++ticket, .address = address, .size = size});
  }
  void leave(std::uint64_t address) {
    add(RawKind::leave, address);
    leave_ticket = ticket;
  }
  void resize(std::uint64_t address, std::uint64_t size) {
    books.add({.kind = RawKind::resize,
               .ticket = ++ticket,
               .address = address,
               .size = size,
               .leave_ticket = leave_ticket});
  }
  const std::vector<KeptEvent>& events() const { return sink.images[0].events; }
  void expect_last(Kind kind, std::uint64_t object, std::uint64_t size) {
    ASSERT_FALSE(events().empty());
    EXPECT_EQ(events().back().kind, kind);
    EXPECT_EQ(events().back().object, object);
    EXPECT_EQ(events().back().size, size);
  }

  KeptEvents sink;
  Books books;
  std::uint64_t ticket = 0;
  std::uint64_t leave_ticket = 0;
};

TEST_F(BooksTest, ObjectsAreNumberedAndFound) {
  add(RawKind::malloc, here, 10);
  add(RawKind::calloc, there, 20);
  add(RawKind::free, here);
  expect_last(Kind::free, 0, 0);
  add(RawKind::malloc, here, 30);
  expect_last(Kind::malloc, 2, 30);
  add(RawKind::free, there);
  expect_last(Kind::free, 1, 0);
  EXPECT_EQ(books.objects(), 3U);
  EXPECT_EQ(books.frees(), 2U);
}

TEST_F(BooksTest, AlignmentsAreOfAlignedOnesOnly) {
  books.add(
      {.kind = RawKind::aligned, .log2_alignment = 6, .ticket = 1, .address = here, .size = 5});
  EXPECT_EQ(events().back().log2_alignment, 6);
  books.add(
      {.kind = RawKind::malloc, .log2_alignment = 6, .ticket = 2, .address = there, .size = 5});
  EXPECT_EQ(events().back().log2_alignment, 0);
}

// While a block is being resized, its memory may be another's; the object is the same throughout.
TEST_F(BooksTest, AResizeKeepsTheObject) {
  add(RawKind::malloc, here, 10);
  leave(here);
  add(RawKind::malloc, here, 11, 1);  // in the memory that the first has left
  EXPECT_EQ(events().back().object, 1U);
  resize(there, 100);
  expect_last(Kind::realloc, 0, 100);
  add(RawKind::free, there);
  expect_last(Kind::free, 0, 0);
  add(RawKind::free, here, 0, 1);
  expect_last(Kind::free, 1, 0);
  EXPECT_EQ(books.oddities().missed_frees, 0U);
  EXPECT_EQ(books.oddities().unknown_frees, 0U);
}

TEST_F(BooksTest, ARefusedResizeLeavesTheObjectWhereItWas) {
  add(RawKind::malloc, here, 10);
  leave(here);
  resize(0, 1ULL << 60);
  expect_last(Kind::refused, 0, 1ULL << 60);
  add(RawKind::free, here);
  expect_last(Kind::free, 0, 0);
}

TEST_F(BooksTest, AResizeToNothingThatFreesIsAFree) {
  add(RawKind::malloc, here, 10);
  leave(here);
  resize(0, 0);
  expect_last(Kind::free, 0, 0);
  add(RawKind::malloc, here, 10);
  EXPECT_EQ(books.oddities().missed_frees, 0U);
}

TEST_F(BooksTest, UnknownBlocksAreCountedAndNotInvented) {
  add(RawKind::free, here);
  EXPECT_TRUE(events().empty());
  EXPECT_EQ(books.oddities().unknown_frees, 1U);
  leave(here);
  resize(there, 50);
  expect_last(Kind::malloc, 0, 50);
  EXPECT_EQ(books.oddities().unknown_resizes, 1U);
  add(RawKind::free, there);
  expect_last(Kind::free, 0, 0);
}

TEST_F(BooksTest, AMissedFreeIsMadeGood) {
  add(RawKind::malloc, here, 10);
  add(RawKind::malloc, here, 20);
  ASSERT_EQ(events().size(), 3U);
  EXPECT_EQ(events()[1].kind, Kind::free);
  EXPECT_EQ(events()[1].object, 0U);
  expect_last(Kind::malloc, 1, 20);
  EXPECT_EQ(books.oddities().missed_frees, 1U);
}

TEST_F(BooksTest, AResizeWhoseEndIsLostIsToldAtTheEnd) {
  add(RawKind::malloc, here, 10);
  leave(here);
  books.conclude(trace::End::killed, 5);
  EXPECT_EQ(books.oddities().unfinished, 1U);
  EXPECT_EQ(sink.images[0].end, trace::End::killed);
}

TEST_F(BooksTest, ThreadsAreNumberedByBirth) {
  add(RawKind::thread_begin, 5, 1, 0);  // created by the first
  add(RawKind::thread_begin, 2, 6, 5);  // and by the one just created
  add(RawKind::malloc, here, 1, 2);
  ASSERT_EQ(events().size(), 3U);
  EXPECT_EQ(events()[0].thread, 1U);
  EXPECT_EQ(events()[0].object, 0U);
  EXPECT_EQ(events()[1].thread, 2U);
  EXPECT_EQ(events()[1].object, 1U);
  EXPECT_EQ(events()[2].thread, 2U);
  EXPECT_EQ(books.threads(), 3U);
}

TEST_F(BooksTest, WhoActsAfterItsEndIsANewThread) {
  add(RawKind::thread_begin, 1, 1, 0);
  add(RawKind::thread_end, 1, 0, 1);
  add(RawKind::thread_begin, 2, 2, 2);  // nobody's announced; it says that it has been 1
  add(RawKind::malloc, here, 1, 2);
  ASSERT_EQ(events().size(), 4U);
  EXPECT_EQ(events()[1].kind, Kind::thread_end);
  EXPECT_EQ(events()[1].thread, 1U);
  EXPECT_EQ(events()[2].kind, Kind::thread_begin);
  EXPECT_EQ(events()[2].thread, 2U);
  EXPECT_EQ(events()[2].object, 1U);
  EXPECT_EQ(events()[3].thread, 2U);
}

TEST_F(BooksTest, AThreadThatNobodyAnnouncedBegins) {
  add(RawKind::malloc, here, 1, 9);
  ASSERT_EQ(events().size(), 2U);
  EXPECT_EQ(events()[0].kind, Kind::thread_begin);
  EXPECT_EQ(events()[0].thread, 1U);
  add(RawKind::malloc, there, 1, UINT32_MAX);  // overwritten memory
  EXPECT_EQ(events().back().thread, 0U);
}

TEST_F(BooksTest, AForkedChildInheritsWhatLives) {
  add(RawKind::malloc, here, 10);
  add(RawKind::malloc, there, 20);
  add(RawKind::free, there);
  Books child = books.fork({.kind = RawKind::fork, .ticket = ++ticket, .address = 1}, {});
  expect_last(Kind::fork, 1, 0);
  EXPECT_EQ(sink.images[1].image.birth, trace::Birth::fork);
  EXPECT_EQ(sink.images[1].image.parent, 0U);
  EXPECT_EQ(sink.images[1].image.fork_event, 3U);
  EXPECT_EQ(sink.images[1].next_object, 2U);
  child.add({.kind = RawKind::free, .ticket = 1, .address = here});
  child.add({.kind = RawKind::free, .ticket = 2, .address = there});
  child.add({.kind = RawKind::malloc, .ticket = 3, .address = here, .size = 1});
  ASSERT_EQ(sink.images[1].events.size(), 2U);
  EXPECT_EQ(sink.images[1].events[0].object, 0U);
  EXPECT_EQ(sink.images[1].events[1].object, 2U);
  EXPECT_EQ(child.oddities().unknown_frees, 1U);
  add(RawKind::free, here);
  expect_last(Kind::free, 0, 0);
}

}  // namespace
}  // namespace ts::record
