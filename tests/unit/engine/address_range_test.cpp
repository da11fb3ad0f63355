// The engine's address range on a system that refuses single calls, one kind of call, or every
// large request.
#include "core/address_range.h"

#include "core/page_map.h"
#include "unit/engine/fresh_engine.h"

namespace ts::testing {
namespace {

using engine::AddressRange;
using engine::huge_page_bytes;
using fake_os::Call;
using fake_os::Request;

// All tables have zero-filled elements for the first `pages`, and the pages can be committed.
// Resets what it writes.
void use_tables(const AddressRange& range) {
  const std::size_t pages = range.pages();
  if (pages == 0) return;
  for (const std::size_t page : {std::size_t{0}, pages / 2, pages - 1}) {
    ASSERT_EQ(page_map.pages[page].entry.load(), 0U);
    page_map.pages[page].entry.store(7);
    page_map.pages[page].entry.store(0);
    ASSERT_EQ(page_map.spans[page].pages, 0U);
    page_map.spans[page].pages = 7;
    page_map.spans[page].pages = 0;
    ASSERT_EQ(page_map.remote_frees[page].pending.load(), 0U);
    page_map.remote_frees[page].pending.store(7);
    page_map.remote_frees[page].pending.store(0);
  }
  ASSERT_EQ(page_map.base % huge_page_bytes, 0U);
  ASSERT_EQ(engine::page_map.lowest_block.load(), page_map.base);
}

void use_heap(std::uint32_t number) {
  ASSERT_EQ(page_map.heaps[number].busy.load(), false);
  page_map.heaps[number].busy.store(true);
  page_map.heaps[number].busy.store(false);
}

// The life of a range in which each call may be refused once: memory that was granted is kept.
void live(AddressRange& range) {
  std::uint32_t heaps = 0;
  const auto extend = [&](std::size_t pages) {
    const std::size_t before = range.pages();
    const std::size_t held = fake_os::range_bytes();
    const bool done = range.extend(pages);
    if (done) {
      EXPECT_GE(range.pages(), pages);
    } else {
      EXPECT_EQ(range.pages(), before);
      EXPECT_EQ(fake_os::range_bytes(), held) << "a refused request holds nothing";
    }
    use_tables(range);
    return done;
  };
  const auto add_heap = [&](std::uint32_t number) {
    if (range.add_heap(number)) heaps = number;
    for (std::uint32_t i = 1; i <= heaps; i += 7) use_heap(i);
  };
  extend(1);
  add_heap(1);
  add_heap(40);
  extend(5000);
  extend(70'000);
  const std::size_t before = range.pages();
  range.shrink(3000);
  EXPECT_EQ(range.pages(), 3000U);
  use_tables(range);
  extend(before);
  add_heap(41);
  fake_os::refuse_nothing();
  // Whatever was refused before works now.
  EXPECT_TRUE(extend(100'000));
  EXPECT_TRUE(range.add_heap(100));
  for (std::uint32_t i = 1; i <= 100; ++i) use_heap(i);
}

TEST(AddressRange, EachRequestIsRefusedInTurn) {
  constexpr unsigned most_requests = 40;  // of one life
  for (const unsigned lonely : {3U, 1U, 0U}) {
    for (unsigned n = 0; n <= most_requests; ++n) {
      SCOPED_TRACE(::testing::Message() << lonely << " addresses, request " << n);
      in_child([&] {
        fake_os::answers.lonely_addresses = lonely;
        fake_os::refuse_nth(n);
        AddressRange range;
        live(range);
        if (n == most_requests) {
          EXPECT_LE(fake_os::failable_calls(), n) << "not all were refused";
        }
      });
      if (HasFailure()) return;
    }
  }
}

TEST(AddressRange, WhatCannotBeGivenBackIsThereTheNextTime) {
  for (const unsigned lonely : {3U, 0U}) {
    in_child([&] {
      fake_os::answers.lonely_addresses = lonely;
      AddressRange range;
      ASSERT_TRUE(range.extend(50'000));
      fake_os::refuse(Call::unmap, Call::decommit);
      range.shrink(1000);
      EXPECT_EQ(range.pages(), 1000U);
      // Without mapping over existing memory, which the double forbids.
      EXPECT_TRUE(range.extend(50'000));
      use_tables(range);
      fake_os::refuse_nothing();
      range.shrink(1000);
      EXPECT_TRUE(range.extend(60'000));
      use_tables(range);
    });
  }
}

TS_ENGINE_TEST(AddressRange, TheNextLonelyAddressServesWhereOneIsTaken) {
  unsigned attempts = 0;
  fake_os::refuse_if(
      [&](const Request& r) { return r.call == Call::reserve_at && ++attempts <= 8 * 2; });
  AddressRange range;
  ASSERT_TRUE(range.extend(1));
  use_tables(range);
}

TS_ENGINE_TEST(AddressRange, WithoutALonelyAddressTheRangeIsReserved) {
  fake_os::refuse(Call::map_at);
  AddressRange range;
  ASSERT_TRUE(range.extend(1));
  use_tables(range);
  EXPECT_GT(fake_os::range_bytes(), std::size_t{1} << 30);
  ASSERT_TRUE(range.add_heap(1));
  use_heap(1);
}

TS_ENGINE_TEST(AddressRange, AReservedRangeIsAsLargeAsIsGranted) {
  fake_os::answers.lonely_addresses = 0;
  fake_os::refuse_if(
      [](const Request& r) { return r.call == Call::reserve && r.bytes > std::size_t{64} << 20; });
  AddressRange range;
  ASSERT_TRUE(range.extend(1));
  EXPECT_LE(fake_os::range_bytes(), std::size_t{64} << 20);
  const std::size_t held = fake_os::range_bytes();
  // Up to its capacity, and no further.
  std::size_t pages = 1;
  while (range.extend(pages)) ++pages;
  EXPECT_GE(pages * page_bytes, std::size_t{16} << 20);
  EXPECT_FALSE(range.extend(AddressRange::max_pages));
  std::uint32_t heaps = 1;
  while (range.add_heap(heaps)) ++heaps;
  EXPECT_GE(heaps, 500U);
  EXPECT_LE(heaps, 4096U);
  EXPECT_EQ(fake_os::range_bytes(), held);
}

TS_ENGINE_TEST(AddressRange, WhereNothingIsGrantedNothingIsHeld) {
  fake_os::refuse_memory();
  AddressRange range;
  EXPECT_FALSE(range.extend(1));
  EXPECT_FALSE(range.add_heap(1));
  EXPECT_EQ(fake_os::range_bytes(), 0U);
  fake_os::refuse(Call::commit, Call::map_at);
  EXPECT_FALSE(range.extend(1));
  EXPECT_EQ(fake_os::range_bytes(), 0U);
  fake_os::refuse_nothing();
  EXPECT_TRUE(range.extend(1));
  EXPECT_TRUE(range.add_heap(1));
}

TS_ENGINE_TEST(AddressRange, StepsAreHalvedUntilTheyAreGranted) {
  AddressRange range;
  ASSERT_TRUE(range.extend(1));
  const std::size_t first = range.pages();
  EXPECT_EQ(first, huge_page_bytes / page_bytes) << "2 MiB at first";
  for (const std::size_t megabytes : {4, 8, 16, 32, 48}) {
    ASSERT_TRUE(range.extend(range.pages() + 1));
    EXPECT_EQ(range.pages(), megabytes / 2 * first) << "twice as many, and from 16 MiB on 16 more";
  }
  // Where the system ignores address hints, the range still gets all its addresses.
  if (fake_os::range_bytes() > std::size_t{1} << 30) return;
  ASSERT_TRUE(range.extend(100'000));
  const std::size_t before = range.pages();
  fake_os::refuse_if(
      [&](const Request& r) { return r.call == Call::reserve_at && r.bytes > 1000 * page_bytes; });
  ASSERT_TRUE(range.extend(before + 1));
  EXPECT_GT(range.pages(), before + 1);
  EXPECT_LE(range.pages(), before + 1000);
  // The last attempt asks for exactly what is needed.
  const std::size_t now = range.pages();
  const std::size_t more = align_up(3, pages_per_os_page());
  fake_os::refuse_if(
      [&](const Request& r) { return r.call == Call::reserve_at && r.bytes > more * page_bytes; });
  EXPECT_TRUE(range.extend(now + 3));
  EXPECT_EQ(range.pages(), now + more);
  EXPECT_FALSE(range.extend(now + more + 5));
  EXPECT_EQ(range.pages(), now + more);
  EXPECT_TRUE(range.extend(now)) << "these are there";
}

TS_ENGINE_TEST(AddressRange, TheFirstHeapComesWithTheFirstPages) {
  AddressRange range;
  ASSERT_TRUE(range.extend(1));
  fake_os::refuse_memory();
  EXPECT_TRUE(range.add_heap(1));
  use_heap(1);
}

TS_ENGINE_TEST(AddressRange, HeapsGoByStepsOrOneByOne) {
  AddressRange range;
  ASSERT_TRUE(range.extend(1));
  ASSERT_TRUE(range.add_heap(1));
  const std::size_t after_one = fake_os::range_bytes();
  ASSERT_TRUE(range.add_heap(2));
  EXPECT_EQ(fake_os::range_bytes(), after_one);
  fake_os::refuse_if([](const Request& r) {
    return r.call == Call::map_at && r.bytes > sizeof(ThreadHeap) + os::page_bytes();
  });
  for (std::uint32_t number = 3; number < 60; ++number) ASSERT_TRUE(range.add_heap(number));
  EXPECT_FALSE(range.add_heap(AddressRange::max_heaps + 1));
}

}  // namespace
}  // namespace ts::testing
