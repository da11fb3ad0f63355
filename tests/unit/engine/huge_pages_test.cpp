// Which memory gets huge pages, on a system that reports the touched pages the test dictates.
#include "features/hugepages/huge_pages.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "core/page_heap.h"
#include "os/options.h"
#include "unit/engine/fresh_engine.h"

namespace ts::testing {
namespace {

using engine::huge_page_bytes;
using fake_os::Call;
using fake_os::Event;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

// A thread that asks for large blocks, and the madvise calls that each one caused.
struct Requests {
  engine::ThreadHeap& heap = make_heap();
  As as{heap};
  engine::Engine engine;
  std::vector<Event> wishes;

  std::byte* allocate(std::size_t bytes, std::size_t alignment = without_colour) {
    fake_os::take_events();
    auto* const p = static_cast<std::byte*>(engine.allocate(bytes, alignment));
    EXPECT_NE(p, nullptr);
    look();
    return p;
  }
  void look() {
    wishes.clear();
    for (const Event& event : fake_os::take_events()) {
      if (event.call == Call::prefer_huge_pages || event.call == Call::refuse_huge_pages)
        wishes.push_back(event);
    }
  }
};

bool is(const Event& event, Call call, const std::byte* begin, std::size_t bytes) {
  return event.call == call && event.begin == begin && event.bytes == bytes;
}

// Either all pages of each range were touched, or none.
void touch_all() {
  fake_os::answers.touched_pages = [](const std::byte*, std::size_t, std::size_t n) { return n; };
}
void touch_none() {
  fake_os::answers.touched_pages = [](const std::byte*, std::size_t, std::size_t) { return 0U; };
}

TS_ENGINE_TEST(HugePages, BlocksBelow4MebibytesAskForNothing) {
  Requests r;
  for (int i = 0; i < 20; ++i) {
    r.allocate(4 * mebibyte - page_bytes);
    EXPECT_TRUE(r.wishes.empty());
  }
}

// All of it has the same huge-page advice.
bool is_covered(const std::vector<Event>& wishes, Call call, const std::byte* begin,
                std::size_t bytes) {
  std::size_t covered = 0;
  for (const Event& wish : wishes) {
    const std::byte* const from = std::max(wish.begin, begin);
    const std::byte* const to = std::min(wish.begin + wish.bytes, begin + bytes);
    if (wish.call == call && from < to) covered += static_cast<std::size_t>(to - from);
  }
  return covered >= bytes;
}

TEST(HugePages, AreRefusedOrAskedForInAllMemoryWhereAnOptionSaysSo) {
  for (const HugePages option : {HugePages::never, HugePages::always}) {
    in_child([option] {
      current_options.huge_pages = option;
      const Call wish =
          option == HugePages::never ? Call::refuse_huge_pages : Call::prefer_huge_pages;
      Requests r;
      std::vector<Event> all;
      option == HugePages::never ? touch_all() : touch_none();
      for (const std::size_t bytes : {std::size_t{100}, 8 * mebibyte, 32 * mebibyte}) {
        const std::byte* const p = r.allocate(bytes);
        all.insert(all.end(), r.wishes.begin(), r.wishes.end());
        EXPECT_TRUE(is_covered(all, wish, p, bytes)) << bytes;
        for (const Event& event : all) EXPECT_EQ(event.call, wish);
      }
    });
  }
}

TS_ENGINE_TEST(HugePages, AreRefusedInAllMemorySoFarOnceTheyAreUnwanted) {
  Requests r;
  const std::byte* const p = r.allocate(8 * mebibyte);
  fake_os::take_events();
  current_options.huge_pages = HugePages::never;
  engine::follow_options();
  r.look();
  EXPECT_TRUE(is_covered(r.wishes, Call::refuse_huge_pages, p, 8 * mebibyte));
}

TS_ENGINE_TEST(HugePages, TheFirstBlockIsAProbeWithSmallPages) {
  Requests r;
  std::byte* const p = r.allocate(4 * mebibyte);
  ASSERT_EQ(r.wishes.size(), 1U);
  EXPECT_TRUE(is(r.wishes[0], Call::refuse_huge_pages, p, 4 * mebibyte));
}

TS_ENGINE_TEST(HugePages, WithoutEvidenceLaterBlocksGetNone) {
  Requests r;
  touch_none();
  r.allocate(8 * mebibyte);
  for (int i = 2; i <= 8; ++i) {
    r.allocate(8 * mebibyte);
    EXPECT_TRUE(r.wishes.empty()) << "nobody has asked for any";
  }
  std::byte* const p = r.allocate(8 * mebibyte);  // one in eight is a probe again
  ASSERT_EQ(r.wishes.size(), 1U);
  EXPECT_TRUE(is(r.wishes[0], Call::refuse_huge_pages, p, 8 * mebibyte));
}

TS_ENGINE_TEST(HugePages, AFilledProbeSpeaksForBlocksOfFourTimesItsLength) {
  Requests r;
  touch_all();
  std::byte* const probe = r.allocate(8 * mebibyte);
  EXPECT_EQ(r.wishes.size(), 1U);
  std::byte* const p = r.allocate(32 * mebibyte);
  ASSERT_EQ(r.wishes.size(), 1U);
  EXPECT_EQ(r.wishes[0].call, Call::prefer_huge_pages);
  EXPECT_EQ(address_of(r.wishes[0].begin) % huge_page_bytes, 0U);
  EXPECT_EQ(r.wishes[0].bytes % huge_page_bytes, 0U);
  EXPECT_GE(r.wishes[0].begin, p);
  EXPECT_LT(r.wishes[0].begin, p + huge_page_bytes);
  // A longer block is a probe itself, on small pages throughout.
  std::byte* const longer = r.allocate(32 * mebibyte + page_bytes);
  ASSERT_EQ(r.wishes.size(), 1U);
  EXPECT_TRUE(is(r.wishes[0], Call::refuse_huge_pages, longer, 32 * mebibyte + page_bytes));
  // Once it is filled, it argues for huge pages in longer blocks too.
  r.allocate(128 * mebibyte);
  ASSERT_EQ(r.wishes.size(), 1U);
  EXPECT_EQ(r.wishes[0].call, Call::prefer_huge_pages);
  release(probe);
}

TS_ENGINE_TEST(HugePages, SevenInEightOfTheLookedAtPagesFillABlock) {
  for (const std::size_t touched : {27U, 28U}) {
    in_child([touched] {
      Requests r;
      fake_os::answers.touched_pages = [touched](const std::byte*, std::size_t, std::size_t n) {
        EXPECT_EQ(n, 32U);
        return touched;
      };
      r.allocate(8 * mebibyte);
      r.allocate(8 * mebibyte);
      EXPECT_EQ(!r.wishes.empty(), touched >= 28);
    });
  }
}

TS_ENGINE_TEST(HugePages, AProbeAmongPromisingBlocksHasSmallPagesInItsMiddle) {
  Requests r;
  touch_all();
  constexpr std::size_t bytes = 16 * mebibyte;
  r.allocate(bytes);
  for (int i = 2; i <= 8; ++i) {
    r.allocate(bytes);
    EXPECT_EQ(r.wishes.size(), 1U) << i;
  }
  std::byte* const p = r.allocate(bytes);  // the ninth
  ASSERT_EQ(r.wishes.size(), 2U);
  EXPECT_EQ(r.wishes[0].call, Call::prefer_huge_pages);
  EXPECT_EQ(r.wishes[1].call, Call::refuse_huge_pages);
  EXPECT_EQ(r.wishes[1].bytes, huge_page_bytes);
  const std::byte* const window = r.wishes[1].begin;
  EXPECT_EQ(address_of(window) % huge_page_bytes, 0U);
  EXPECT_GT(window, p + bytes / 4);
  EXPECT_LT(window, p + 3 * bytes / 4);
  // Only the window decides: huge pages elsewhere are fully touched.
  fake_os::answers.touched_pages = [window](const std::byte* begin, std::size_t, std::size_t n) {
    return begin == window ? 0 : n;
  };
  r.allocate(bytes);
  EXPECT_EQ(r.wishes.size(), 1U);
  EXPECT_EQ(r.wishes[0].call, Call::refuse_huge_pages) << "an earlier block may have asked here";
  touch_all();
  r.allocate(bytes);
  ASSERT_EQ(r.wishes.size(), 1U);
  EXPECT_EQ(r.wishes[0].call, Call::prefer_huge_pages) << "the window was filled later";
}

TS_ENGINE_TEST(HugePages, TheLastHugePageReachesIntoCleanMemoryBehindTheBlock) {
  Requests r;
  touch_all();
  r.allocate(64 * mebibyte);
  // Memory is committed in whole huge pages: what follows is clean up to the end of one.
  std::byte* const p = r.allocate(20 * mebibyte + page_bytes);
  ASSERT_EQ(r.wishes.size(), 1U);
  const std::byte* const end = r.wishes[0].begin + r.wishes[0].bytes;
  EXPECT_GE(end, p + 20 * mebibyte + page_bytes);
  EXPECT_EQ(address_of(end) % huge_page_bytes, 0U);
  // Except where the next block also has to start at a huge page.
  std::byte* const q = r.allocate(20 * mebibyte + page_bytes, huge_page_bytes);
  ASSERT_EQ(r.wishes.size(), 1U);
  EXPECT_LE(r.wishes[0].begin + r.wishes[0].bytes, q + 20 * mebibyte + page_bytes);
  EXPECT_EQ(r.wishes[0].begin, q);
  EXPECT_EQ(r.wishes[0].bytes, 20 * mebibyte);
}

TS_ENGINE_TEST(HugePages, AReleaseIsTheLastWordOnAProbe) {
  Requests r;
  touch_none();
  std::byte* const p = r.allocate(8 * mebibyte);
  std::byte* const other = r.allocate(8 * mebibyte);
  r.allocate(mebibyte);  // so that the free part is not at the end
  release(other);        // no probe: nothing is checked
  touch_all();
  release(p);
  touch_none();  // whatever is there later is no evidence
  r.allocate(32 * mebibyte);
  EXPECT_TRUE(std::any_of(r.wishes.begin(), r.wishes.end(), [](const Event& event) {
    return event.call == Call::prefer_huge_pages;
  }));
}

TS_ENGINE_TEST(HugePages, AfterManyRequestsAllPiecesBecomeOneAgain) {
  ASSERT_NE(engine::page_heap.allocate(1, 1, 0, engine::PageHeap::From::anywhere), nullptr);
  engine::Span* const span =
      engine::page_heap.allocate(256, 1, 0, engine::PageHeap::From::anywhere);
  ASSERT_NE(span, nullptr);
  touch_none();
  const std::byte* const base = reinterpret_cast<std::byte*>(engine::page_map.base);
  const std::size_t all = engine::page_map.page_count.load() * page_bytes;
  for (int i = 1; i <= 8192; ++i) {
    fake_os::take_events();
    engine::hooks::fresh_large_block(*span, 1);
    const std::vector<Event> events = fake_os::take_events();
    const bool mends = std::any_of(events.begin(), events.end(), [&](const Event& event) {
      return is(event, Call::refuse_huge_pages, base, all);
    });
    ASSERT_EQ(mends, i == 8192) << i;
  }
}

std::size_t steps() { return engine::page_map.page_count.load() / engine::pages_per_huge_page; }

// Grows the page heap as blocks of a size in use do, in steps of one huge page.
struct Growth {
  engine::ThreadHeap& heap = make_heap();
  As as{heap};
  engine::Engine engine;
  std::string asked;  // one letter per step: h if it asked for a huge page, else s

  // Until this many steps are full.
  std::string fill(std::size_t until, std::size_t block_bytes) {
    while (steps() < until) EXPECT_NE(engine.allocate(block_bytes, 16), nullptr);
    for (const Event& event : fake_os::take_events()) {
      EXPECT_NE(event.call, Call::refuse_huge_pages);
      if (event.call != Call::prefer_huge_pages) continue;
      EXPECT_EQ(event.bytes, huge_page_bytes);
      const std::size_t offset = address_of(event.begin) - engine::page_map.base;
      EXPECT_EQ(offset % huge_page_bytes, 0U);
      asked.resize(std::max(asked.size(), offset / huge_page_bytes), 's');
      asked += 'h';
    }
    asked.resize(std::max(asked.size(), until), 's');
    return asked;
  }
};

TS_ENGINE_TEST(HugePages, GrowthAsksInRunsBehindStepsThatSmallBlocksFilled) {
  EXPECT_EQ(Growth{}.fill(29, 1000), "sshhhshhhhhhshhhhhhhshhhhhhhs");
}

TS_ENGINE_TEST(HugePages, GrowthOfLargerBlocksAsksForNone) {
  Growth growth;
  EXPECT_EQ(growth.fill(20, 5000), std::string(20, 's'));
  growth.fill(22, 1000);
  EXPECT_NE(growth.engine.allocate(4 * mebibyte - page_bytes, 16), nullptr);
  for (const Event& event : fake_os::take_events()) EXPECT_NE(event.call, Call::prefer_huge_pages);
}

TS_ENGINE_TEST(HugePages, GrowthOfSlabsWithFewBlocksAsksForNone) {
  engine::Engine engine;
  while (steps() < 20) {
    const As as{make_heap()};
    for (std::size_t bytes = 16; bytes <= 1024; bytes += 16) engine.allocate(bytes, 16);
  }
  for (const Event& event : fake_os::take_events()) EXPECT_NE(event.call, Call::prefer_huge_pages);
}

TS_ENGINE_TEST(HugePages, GrowthStopsAskingOnceAStepIsNotFull) {
  Growth growth;
  growth.fill(13, 1000);
  EXPECT_EQ(growth.fill(30, 5000), "sshhhshhhhhhshhhhhhh" + std::string(10, 's'));
  growth.fill(37, 1000);
  EXPECT_EQ(growth.asked.substr(30), "shhhshh") << "runs are short again";
}

TS_ENGINE_TEST(HugePages, AStepMayBeFilledAWhileAfterTheNextOneBegan) {
  if (debug_level >= 2) GTEST_SKIP() << "the counts that it writes are no heap's, as level 2 sees";
  ends_sound = false;  // slab counts are overwritten
  Growth growth;
  growth.fill(6, 1000);
  const auto set_used = [](std::size_t step, std::uint32_t (*used)(const engine::Span&)) {
    for (std::size_t i = 0; i < engine::pages_per_huge_page; ++i) {
      engine::Span& slab = engine::page_map.spans[step * engine::pages_per_huge_page + i];
      use_of(slab).used.store(used(slab));
    }
  };
  const auto none = [](const engine::Span&) { return 0U; };
  set_used(5, none);
  growth.fill(7, 1000);
  set_used(6, none);
  set_used(5, [](const engine::Span& slab) { return std::uint32_t{slab.slab_blocks}; });
  EXPECT_EQ(growth.fill(8, 1000), "sshhhssh");
}

TS_ENGINE_TEST(HugePages, AWishIsTakenBackOnlyWhereOneWasMade) {
  std::byte memory[1] = {};
  engine::refuse_inherited_huge_pages(memory, 1);
  EXPECT_TRUE(fake_os::take_events().empty());
  engine::ask_for_huge_pages(memory, 1);
  engine::refuse_inherited_huge_pages(memory, 1);
  const std::vector<Event> events = fake_os::take_events();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_TRUE(is(events[0], Call::prefer_huge_pages, memory, 1));
  EXPECT_TRUE(is(events[1], Call::refuse_huge_pages, memory, 1));
}

}  // namespace
}  // namespace ts::testing
