// The page heap against an oracle that knows whether each page is used, dirty or clean. The system
// grants everything, or refuses some requests.
#include "core/page_heap.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "unit/engine/fresh_engine.h"
#include "unit/engine/page_heap_access.h"

namespace ts::testing {
namespace {

using engine::PageHeap;
using From = PageHeap::From;

enum class Page : unsigned char { used, dirty, clean };

// As slow paths do: they send what a release leaves for later at their end.
void release_span(Span* span) {
  page_heap.release(span);
  page_heap.send_purges();
}
void release_span_clean(Span* span, std::size_t dirty = 0) {
  page_heap.release_clean(span, dirty);
  page_heap.send_purges();
}

// Marks written pages, to notice pages that should be zero but are not.
constexpr std::size_t marks[] = {0, 4096 + 40, page_bytes - 8};

class Oracle {
 public:
  explicit Oracle(unsigned seed) : random_{seed} {}

  void step() {
    const std::size_t what = number(16);
    if (what < 6) {
      allocate();
    } else if (what < 11) {
      release_one();
    } else if (what < 13) {
      resize();
    } else if (what == 13) {
      if (number(8) == 0) trim(number(4) == 0 ? 0 : number(200) * page_bytes);
    } else if (what == 14) {
      now_ += number(400);
      fake_os::answers.clock = now_;
    } else {
      ask_behind();
    }
    if (::testing::Test::HasFatalFailure()) return;
    compare();
  }

  void finish() {
    fake_os::refuse_nothing();
    may_refuse_ = false;
    while (!used_.empty()) release_one();
    compare();
    trim(0);
    compare();
    EXPECT_LT(longest_run(Page::dirty), least_purged_pages());
    EXPECT_EQ(count(Page::used), 0U);
    if (pages_per_os_page() != 1) return;
    std::size_t spans = 0;
    page_heap.for_each([&](const Span&) { ++spans; });
    EXPECT_LE(spans, 1U) << "all is one clean span again";
  }

  // Some of the system's calls are refused from now on.
  void refuse_some() {
    may_refuse_ = true;
    fake_os::refuse_if([this](const fake_os::Request& request) {
      const bool is = number(3) == 0;
      if (is && request.call == fake_os::Call::discard) {
        see_events();  // earlier memory may be part of this
        set_pages(page_at(request.begin), request.bytes / page_bytes, Page::dirty);
      }
      return is;
    });
  }

  unsigned allocated = 0;
  unsigned refused = 0;
  unsigned purged = 0;
  unsigned grown_in_place = 0;
  unsigned joined = 0;

 private:
  struct Used {
    Span* span;
    std::size_t pages;
    bool is_touched;
  };

  std::size_t number(std::size_t below) { return random_() % below; }

  static std::size_t page_at(const void* p) { return engine::page_of(p); }
  static std::byte* memory_at(std::size_t page) {
    return reinterpret_cast<std::byte*>(page_map.base) + page * page_bytes;
  }

  void set_pages(std::size_t first, std::size_t count, Page page) {
    if (first + count > pages_.size()) pages_.resize(first + count, Page::clean);
    std::fill_n(pages_.begin() + static_cast<std::ptrdiff_t>(first), count, page);
  }

  // Discarded memory is clean, also past the end.
  void see_events() {
    for (const fake_os::Event& event : fake_os::take_events()) {
      if (event.call != fake_os::Call::discard || event.begin == nullptr) continue;
      set_pages(page_at(event.begin), event.bytes / page_bytes, Page::clean);
      ++purged;
    }
  }

  std::size_t longest_run(Page kind) const {
    std::size_t longest = 0;
    std::size_t run = 0;
    for (const Page page : pages_) longest = std::max(longest, run = page == kind ? run + 1 : 0);
    return longest;
  }

  std::size_t length() { return number(4) == 0 ? number(300) + 1 : number(20) + 1; }

  void allocate() {
    if (used_.size() > 60) return;
    const std::size_t pages = length();
    const std::size_t alignment = number(4) == 0 ? std::size_t{1} << number(8) : 1;
    const From from = static_cast<From>(number(3));
    const unsigned size_class = pages <= 16 && number(3) == 0 ? 1 : 0;
    const std::size_t end_before = pages_.size();
    const std::size_t dirty_run = longest_run(Page::dirty);
    Span* const span = page_heap.allocate(pages, alignment, size_class, from);
    see_events();
    if (span == nullptr) {
      ++refused;
      // A dirty span of the next longer list would have been enough.
      ASSERT_TRUE(from == From::clean || dirty_run < (pages + alignment - 1) * 9 / 8 + 2);
      ASSERT_TRUE(from == From::dirty || may_refuse_) << "the system has memory";
      return;
    }
    ++allocated;
    const std::size_t first = engine::first_page_of(span);
    ASSERT_EQ(span->pages, pages);
    ASSERT_EQ((page_map.base / page_bytes + first) % alignment, 0U);
    ASSERT_EQ(span->state, size_class != 0 ? SpanState::slab : SpanState::large);
    ASSERT_EQ(span->slab_blocks,
              size_class != 0 ? engine::blocks_in_slab(engine::size_classes[1], pages) : 0);
    ASSERT_TRUE(from != From::dirty || !span->zeroed);
    ASSERT_TRUE(from != From::clean || span->zeroed);
    const std::size_t end = engine::PageHeapTest::top();
    if (end > end_before) {
      // Fresh memory. It extends a preceding dirty span, unless it has to be clean.
      const bool joins = end_before != 0 && pages_.back() == Page::dirty && from != From::clean;
      pages_.resize(end, joins ? Page::dirty : Page::clean);
    }
    std::size_t dirty = 0;
    for (std::size_t i = first; i < first + pages; ++i) {
      ASSERT_NE(pages_[i], Page::used) << "page " << i;
      dirty += pages_[i] == Page::dirty ? 1 : 0;
      if (span->zeroed) expect_zero(i);
    }
    // A dirty span, or a long one that includes part of its clean neighbours.
    const bool is_joined = !span->zeroed && dirty != pages;
    ASSERT_EQ(dirty, span->zeroed ? 0 : is_joined ? dirty : pages);
    if (is_joined) {
      ++joined;
      ASSERT_TRUE(pages >= 64 && alignment == 1 && dirty >= pages / 2);
    }
    if (from == From::anywhere && span->zeroed) {
      ASSERT_LT(dirty_run, (pages + alignment - 1) * 9 / 8 + 2) << "dirty memory comes first";
    }
    ASSERT_TRUE(from != From::dirty || first + pages <= end_before);
    set_pages(first, pages, Page::used);
    const bool touches = number(8) != 0;
    if (touches) touch(first, pages);
    used_.push_back({span, pages, touches || !span->zeroed});
  }

  static void expect_zero(std::size_t page) {
    for (const std::size_t at : marks) {
      std::uint64_t word = 0;
      std::memcpy(&word, memory_at(page) + at, sizeof word);
      ASSERT_EQ(word, 0U) << "page " << page;
    }
  }
  static void touch(std::size_t first, std::size_t pages) {
    for (std::size_t i = first; i < first + pages; ++i) {
      for (const std::size_t at : marks) std::memset(memory_at(i) + at, 0x5a, 8);
    }
  }

  Used& any() { return used_[number(used_.size())]; }

  void release_one() {
    if (used_.empty()) return;
    std::swap(any(), used_.back());
    const Used used = used_.back();
    used_.pop_back();
    const std::size_t first = engine::first_page_of(used.span);
    if (used.is_touched || used.span->state == SpanState::slab || number(2) == 0) {
      set_pages(first, used.pages, Page::dirty);
      release_span(used.span);
    } else {
      const std::size_t dirty = number(2) == 0 ? number(used.pages) : 0;
      set_pages(first, used.pages, Page::clean);
      set_pages(first, dirty, Page::dirty);
      release_span_clean(used.span, dirty);
    }
    see_events();
  }

  void resize() {
    if (used_.empty()) return;
    Used& used = any();
    if (used.span->state != SpanState::large) return;
    const std::size_t pages = number(8) == 0 ? engine::AddressRange::max_pages + 1 : length();
    const std::size_t first = engine::first_page_of(used.span);
    std::size_t free_behind = 0;
    const bool was_last = first + used.pages == pages_.size();
    if (pages < used.pages) set_pages(first + pages, used.pages - pages, Page::dirty);
    // One free span: what follows a change of kind does not count.
    std::size_t i = first + used.pages;
    const std::size_t behind = i;
    while (pages >= used.pages && i < pages_.size() && pages_[i] == pages_[behind] &&
           pages_[i] != Page::used) {
      ++free_behind;
      ++i;
    }
    const bool reaches_end = was_last || (free_behind != 0 && i == pages_.size());
    const bool can_move = number(2) == 0;
    const bool fits_elsewhere = can_move && longest_run(Page::clean) >= pages + pages / 2;
    const bool done = page_heap.resize(used.span, pages, can_move);
    page_heap.send_purges();
    if (pages > engine::AddressRange::max_pages) {
      ASSERT_FALSE(done);
    } else if (pages <= used.pages + free_behind) {
      ASSERT_TRUE(done);
    } else {
      ASSERT_TRUE(done ? reaches_end : !reaches_end || may_refuse_ || fits_elsewhere);
    }
    if (done && pages > used.pages) {
      ++grown_in_place;
      set_pages(first, pages, Page::used);
      touch(first, pages);
      used.is_touched = true;
    }
    // Before, so that purging the tail counts afterwards.
    see_events();
    if (done) used.pages = pages;
  }

  void trim(std::size_t keep_bytes) {
    const std::size_t before = count(Page::dirty);
    const bool gave = page_heap.trim(keep_bytes);
    see_events();
    const std::size_t after = count(Page::dirty);
    EXPECT_EQ(gave, before != after);
    if (!may_refuse_ && after > keep_bytes / page_bytes) {
      EXPECT_LT(longest_run(Page::dirty), least_purged_pages());
    }
  }

  void ask_behind() {
    if (used_.empty()) return;
    const Used& used = any();
    std::size_t i = engine::first_page_of(used.span) + used.pages;
    std::size_t clean = 0;
    while (i < pages_.size() && pages_[i] == Page::clean) {
      ++clean;
      ++i;
    }
    if (i == pages_.size()) clean += engine::PageHeapTest::committed() - pages_.size();
    ASSERT_EQ(page_heap.clean_after(used.span), clean);
  }

  std::size_t count(Page kind) const {
    return static_cast<std::size_t>(std::count(pages_.begin(), pages_.end(), kind));
  }

  // The spans match the oracle page by page, and none can be merged.
  void compare() {
    const Fault fault = page_heap.find_fault();
    ASSERT_FALSE(fault) << fault.equation;
    ASSERT_EQ(engine::PageHeapTest::top(), pages_.size());
    ASSERT_EQ(page_heap.totals().segment_bytes, pages_.size() * page_bytes);
    std::map<std::size_t, std::size_t> used;
    for (const Used& u : used_) used[engine::first_page_of(u.span)] = u.pages;
    std::size_t next = 0;
    std::optional<Page> before;
    page_heap.for_each([&](const Span& span) {
      const std::size_t first = engine::first_page_of(&span);
      ASSERT_EQ(first, next);
      next += span.pages;
      Page expected = Page::used;
      if (span.state == SpanState::free) {
        expected = span.zeroed ? Page::clean : Page::dirty;
        ASSERT_NE(before, std::optional{expected}) << "neighbours are merged";
        before = expected;
      } else {
        ASSERT_EQ(used[first], span.pages);
        before.reset();
      }
      for (std::size_t i = first; i < next; ++i) ASSERT_EQ(pages_[i], expected) << "page " << i;
    });
    ASSERT_EQ(next, pages_.size());
    ASSERT_EQ(engine::PageHeapTest::dirty().pages(), count(Page::dirty));
    ASSERT_EQ(engine::PageHeapTest::clean().pages(), count(Page::clean));
  }

  std::mt19937_64 random_;
  std::vector<Page> pages_;
  std::vector<Used> used_;
  std::uint64_t now_ = 1000;
  bool may_refuse_ = false;
};

// In a child for each seed; `prepare` sets the system up, `check` looks at what has happened.
template <class Prepare, class Check>
void play(std::initializer_list<unsigned> seeds, Prepare prepare, Check check) {
  for (const unsigned seed : seeds) {
    in_child([&] {
      Oracle oracle{seed};
      prepare(oracle);
      for (int i = 0; i < rounds(3000) && !::testing::Test::HasFailure(); ++i) oracle.step();
      oracle.finish();
      check(oracle);
    });
    if (::testing::Test::HasFailure()) return;
  }
}
void nothing(const Oracle&) {}

TEST(PageHeap, AgreesWithTheOracle) {
  play({0, 1, 2}, nothing, [](const Oracle& oracle) {
    EXPECT_GT(oracle.allocated, 30U);
    EXPECT_GT(oracle.purged, 0U);
    EXPECT_GT(oracle.grown_in_place, 0U);
  });
}

TEST(PageHeap, AgreesWithTheOracleUnderRefusals) {
  play(
      {10, 11, 12}, [](Oracle& oracle) { oracle.refuse_some(); },
      [](const Oracle& oracle) { EXPECT_GT(oracle.refused, 0U); });
}

TEST(PageHeap, AgreesWithTheOracleUnderStrictOvercommit) {
  play(
      {30, 31, 32}, [](const Oracle&) { fake_os::answers.counts_all_memory = true; }, nothing);
}

TEST(PageHeap, AgreesWithTheOracleInAReservedRange) {
  play(
      {20},
      [](Oracle& oracle) {
        fake_os::answers.lonely_addresses = 0;
        oracle.refuse_some();
      },
      nothing);
}

// ---- single rules ----

Span* allocate_pages(std::size_t pages, From from = From::anywhere, unsigned size_class = 0) {
  return page_heap.allocate(pages, 1, size_class, from);
}

TS_ENGINE_TEST(PageHeap, RefusesWhatIsBeyondAnyRange) {
  EXPECT_EQ(allocate_pages(engine::AddressRange::max_pages + 1), nullptr);
  EXPECT_EQ(page_heap.allocate(1, 2 * engine::AddressRange::max_pages, 0, From::anywhere), nullptr);
  EXPECT_EQ(page_heap.totals().segment_bytes, 0U);
}

constexpr std::size_t mib = (std::size_t{1} << 20) / page_bytes;

TS_ENGINE_TEST(PageHeap, ACallPurgesSlicesOfALongSpanFromItsEnd) {
  Span* const big = allocate_pages(200 * mib);
  allocate_pages(1);
  release_span(big);
  EXPECT_EQ(engine::PageHeapTest::clean().pages(), 64 * mib);
  EXPECT_EQ(engine::PageHeapTest::dirty().pages(), 136 * mib);
  EXPECT_FALSE(page_heap.find_fault());
  // The next purge continues.
  release_span(allocate_pages(1, From::dirty));
  EXPECT_EQ(engine::PageHeapTest::dirty().pages(), 72 * mib);
}

TS_ENGINE_TEST(PageHeap, WhatWasPurgedInPartServesWhole) {
  Span* const big = allocate_pages(200 * mib);
  allocate_pages(1);
  release_span(big);
  ASSERT_EQ(engine::PageHeapTest::clean().pages(), 64 * mib);
  const std::size_t top = engine::PageHeapTest::top();
  Span* const most = allocate_pages(190 * mib);
  EXPECT_EQ(most, big);
  EXPECT_FALSE(most->zeroed);
  EXPECT_EQ(engine::PageHeapTest::clean().pages(), 10 * mib);
  EXPECT_EQ(engine::PageHeapTest::top(), top);
  EXPECT_FALSE(page_heap.find_fault());
  release_span(most);
  // Except where it would have to be clean or aligned.
  EXPECT_TRUE(allocate_pages(190 * mib, From::clean)->zeroed);
  EXPECT_GT(engine::PageHeapTest::top(), top);
  EXPECT_FALSE(page_heap.find_fault());
}

// vm.overcommit_memory=2: uncommitted memory is inaccessible here too.
TS_ENGINE_TEST(PageHeap, PurgedMemoryGivesUpItsCharge) {
  fake_os::answers.counts_all_memory = true;
  Span* const span = allocate_pages(4 * mib);
  allocate_pages(1);
  release_span(span);
  fake_os::take_events();
  page_heap.trim(0);
  std::size_t given_up = 0;
  for (const fake_os::Event& event : fake_os::take_events())
    given_up += event.call == fake_os::Call::decommit ? event.bytes : 0;
  EXPECT_GE(given_up, 3 * mib * page_bytes) << "but for the ends, where OS pages are long";
  fake_os::refuse(fake_os::Call::commit);
  EXPECT_EQ(allocate_pages(3 * mib, From::clean), nullptr) << "the system refuses to count it";
  EXPECT_FALSE(page_heap.find_fault());
  fake_os::refuse_nothing();
  Span* const again = allocate_pages(3 * mib, From::clean);
  ASSERT_NE(again, nullptr);
  EXPECT_LE(first_page_of(again) - first_page_of(span), mib);
  for (const std::size_t mark : marks) EXPECT_EQ(memory_of(again)[mark], std::byte{0});
}

TS_ENGINE_TEST(PageHeap, AJoinedSpanMayBeginInCleanMemory) {
  Span* const first = allocate_pages(2 * mib);
  Span* const second = allocate_pages(4 * mib);
  Span* const third = allocate_pages(2 * mib);
  allocate_pages(1);
  release_span_clean(first);
  release_span(second);
  release_span_clean(third);
  Span* const joined = allocate_pages(7 * mib, From::dirty);
  EXPECT_EQ(joined, first + mib);
  EXPECT_EQ(engine::PageHeapTest::clean().pages() % (2 * mib), mib);
  EXPECT_FALSE(page_heap.find_fault());
  release_span(joined);
  // A short span does not join, nor one that would be mostly clean.
  EXPECT_EQ(allocate_pages(9 * mib, From::dirty), nullptr);
  EXPECT_FALSE(page_heap.find_fault());
}

TS_ENGINE_TEST(PageHeap, FreeSpansAreMergedForARequestThatTheySuffice) {
  Span* const first = allocate_pages(4 * mib);
  Span* const second = allocate_pages(4 * mib);
  allocate_pages(1);
  EXPECT_FALSE(page_heap.merge_for(1)) << "nothing is free";
  release_span_clean(first);
  release_span(second);
  EXPECT_FALSE(page_heap.merge_for(9 * mib));
  EXPECT_EQ(engine::PageHeapTest::dirty().pages(), 4 * mib);
  EXPECT_TRUE(page_heap.merge_for(8 * mib));
  EXPECT_EQ(engine::PageHeapTest::dirty().pages(), 0U);
  EXPECT_EQ(allocate_pages(8 * mib, From::clean), first);
  EXPECT_FALSE(page_heap.merge_for(1)) << "nothing is dirty";
}

TS_ENGINE_TEST(PageHeap, RoundsPurgeInSlicesDownToWhatMayStay) {
  allocate_pages(1);
  std::vector<Span*> spans;
  for (int i = 0; i < 3; ++i) {
    spans.push_back(allocate_pages(5 * mib));
    allocate_pages(1);
  }
  for (Span* const span : spans) release_span(span);
  ASSERT_EQ(engine::PageHeapTest::dirty().pages(), 15 * mib);
  EXPECT_EQ(page_heap.end_round().pages_to_purge, 0U);
  for (int round = 0; round < 2; ++round) EXPECT_FALSE(page_heap.end_round().is_settled);
  const engine::PageHeap::RoundEnd end = page_heap.end_round();
  EXPECT_TRUE(end.is_settled);
  std::size_t pages = end.pages_to_purge;
  EXPECT_EQ(pages, 14 * mib);
  // 8 MiB, or a little more, up to the next huge page boundary.
  const std::size_t gone = page_heap.purge_slice(pages);
  EXPECT_GE(gone, 8 * mib);
  EXPECT_LT(gone, 10 * mib);
  // The partial OS page at either end stays dirty.
  const std::size_t parts = 2 * (page_map.pages_per_os_page - 1);
  EXPECT_GE(engine::PageHeapTest::dirty().pages(), 15 * mib - gone);
  EXPECT_LE(engine::PageHeapTest::dirty().pages(), 15 * mib - gone + parts);
  pages -= gone;
  EXPECT_GE(page_heap.purge_slice(pages), pages);
  EXPECT_LE(engine::PageHeapTest::dirty().pages(), mib + 2 * parts);
  fake_os::refuse(fake_os::Call::discard);
  EXPECT_EQ(page_heap.purge_slice(mib), 0U);
  EXPECT_FALSE(page_heap.find_fault());
}

TS_ENGINE_TEST(PageHeap, PiecesBelow64KibibytesAreLeftByAPurgeAndTakenByATrim) {
  if (pages_per_os_page() != 1) return;  // the next test
  std::vector<Span*> spans;
  for (int i = 0; i < 2600; ++i) spans.push_back(allocate_pages(1));
  for (std::size_t i = 0; i < spans.size(); i += 2) release_span(spans[i]);
  fake_os::answers.clock = 5000;
  release_span(spans[1]);  // three in a row now, 1301 in all
  fake_os::answers.clock = 5250;
  release_span(spans[3]);
  EXPECT_EQ(fake_os::discarded_bytes(), 5 * page_bytes);
  EXPECT_TRUE(page_heap.trim(0));
  EXPECT_EQ(engine::PageHeapTest::dirty().pages(), 0U);
  EXPECT_FALSE(page_heap.trim(0));
}

// Neighbours, which may be in use, share the other pages.
TEST(PageHeap, OnlyWholeOsPagesArePurged) {
  const std::size_t unit = pages_per_os_page();
  for (std::size_t first = 1; first <= unit; ++first) {
    for (std::size_t pages = least_purged_pages(); pages <= 4 * unit; ++pages) {
      in_child([=] {
        allocate_pages(first);
        Span* const span = allocate_pages(pages);
        allocate_pages(1);
        ASSERT_EQ(engine::first_page_of(span), first);
        release_span(span);
        fake_os::take_events();
        ASSERT_TRUE(page_heap.trim(0));
        const std::vector<fake_os::Event> events = fake_os::take_events();
        ASSERT_EQ(events.size(), 1U);
        const std::size_t begin = engine::page_of(events[0].begin);
        const std::size_t end = begin + events[0].bytes / page_bytes;
        EXPECT_EQ(begin, align_up(first, unit));
        EXPECT_EQ(end, align_down(first + pages, unit));
        EXPECT_EQ(engine::PageHeapTest::dirty().pages(), pages - (end - begin));
        EXPECT_FALSE(page_heap.find_fault());
      });
    }
  }
}

// The allocation fails during the purge, which ends before anyone waits for it.
TS_ENGINE_TEST(PageHeap, APurgeThatHasEndedMeanwhileIsWorthAnotherAttempt) {
  page_heap.limit(PageHeap::no_limit, 12 * mib * page_bytes);
  release_span(allocate_pages(8 * mib));
  std::uint32_t ended = page_heap.ended_purges();
  bool is_first = true;
  fake_os::refuse_if([&](const fake_os::Request& request) {
    if (request.call == fake_os::Call::discard && std::exchange(is_first, false)) {
      EXPECT_EQ(allocate_pages(8 * mib), nullptr);
      EXPECT_TRUE(page_heap.wait_for_purge(ended)) << "it is under way";
    }
    return false;
  });
  EXPECT_TRUE(page_heap.trim(0));
  EXPECT_FALSE(is_first);
  EXPECT_TRUE(page_heap.wait_for_purge(ended)) << "it has ended";
  EXPECT_FALSE(page_heap.wait_for_purge(ended)) << "nothing has changed since";
  EXPECT_NE(allocate_pages(8 * mib), nullptr);
}

TS_ENGINE_TEST(PageHeap, ACommitThatIsRefusedWholeMayGoByPart) {
  fake_os::refuse_if([](const fake_os::Request& r) {
    return r.call == fake_os::Call::commit && r.bytes > 4 * page_bytes;
  });
  ASSERT_NE(allocate_pages(3), nullptr);
  EXPECT_EQ(engine::PageHeapTest::committed(), align_up(3, pages_per_os_page()));
  EXPECT_EQ(allocate_pages(9), nullptr);
  EXPECT_FALSE(page_heap.find_fault());
  fake_os::refuse_nothing();
  EXPECT_NE(allocate_pages(5), nullptr);
}

TS_ENGINE_TEST(PageHeap, ARefusedCommitGivesTheAddressesBack) {
  ASSERT_NE(allocate_pages(1), nullptr);
  const std::size_t before = fake_os::range_bytes();
  fake_os::refuse(fake_os::Call::commit);
  EXPECT_EQ(allocate_pages(5000), nullptr);
  EXPECT_EQ(fake_os::range_bytes(), before);
}

TS_ENGINE_TEST(PageHeap, AFreeSpanAtTheEndIsFoundHoweverManyAreListedBeforeIt) {
  // Spans of 64 pages share a list with those of up to 71; find() checks only 16 of its entries.
  Span* const last_but_one = allocate_pages(70);
  std::vector<Span*> spans;
  for (int i = 0; i < 17; ++i) {
    spans.push_back(allocate_pages(64));
    allocate_pages(1);
  }
  Span* const end = allocate_pages(70);
  release_span_clean(end);
  for (Span* const span : spans) release_span_clean(span);
  EXPECT_EQ(allocate_pages(70, From::clean), end);
  EXPECT_FALSE(page_heap.find_fault());
  release_span(last_but_one);
}

}  // namespace
}  // namespace ts::testing
