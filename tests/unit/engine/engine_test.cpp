// Large blocks, blocks with a slab of their own, and the engine as a whole: four heaps that
// allocate and free each other's blocks.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "core/large_blocks.h"
#include "os/options.h"
#include "unit/engine/fresh_engine.h"
#include "unit/engine/page_heap_access.h"

namespace ts::testing {
namespace {

using Sizes = std::vector<std::size_t>;

// ---- blocks with a slab of their own ----

TS_HEAP_TEST(SingleBlockSlabs, HaveWholePagesAndAreReusedAtOnce) {
  for (const std::size_t pages : {3, 4}) {
    void* const p = allocate(heap, pages * page_bytes);
    EXPECT_EQ(address_of(p) % page_bytes, 0U);
    EXPECT_EQ(engine.bytes_of(p), pages * page_bytes);
    EXPECT_EQ(allocate(heap, (pages - 1) * page_bytes + 1) != p, true);
    EXPECT_EQ(span_of(p).state, SpanState::slab);
    EXPECT_EQ(span_of(p).slab_blocks, 1U);
    EXPECT_EQ(span_of(p).pages, pages);
    EXPECT_TRUE(engine.resize(p, (pages - 1) * page_bytes + 1));
    std::memset(p, 1, pages * page_bytes);
    release(heap, p);
    EXPECT_EQ(allocate(heap, pages * page_bytes), p);
    expect_sound();
  }
  void* const large = allocate(heap, 4 * page_bytes + 1);
  EXPECT_EQ(span_of(large).state, SpanState::large);
}

// The fewer heaps there are, the more each keeps.
TS_ENGINE_TEST(SingleBlockSlabs, GoToThePageHeapWhenTheBinIsFull) {
  constexpr std::size_t bytes = 4 * page_bytes;
  constexpr unsigned c = class_for(bytes);
  for (std::uint32_t number = 1; number <= engine::single_blocks_in_bins + 2; ++number) {
    ThreadHeap& heap = make_heap();
    const std::uint32_t capacity =
        std::min(engine::single_blocks_in_bins / number, engine::single_blocks);
    std::vector<void*> blocks;
    for (std::uint32_t i = 0; i < capacity + 3; ++i) blocks.push_back(allocate(heap, bytes));
    for (void* const p : blocks) release(heap, p);
    expect_sound();
    EXPECT_EQ(engine::counted_blocks(heap, c), static_cast<int>(capacity)) << number;
    EXPECT_EQ(heap.slabs[c], capacity) << number;
    void* const p = allocate(heap, bytes);
    release(heap, p);
    EXPECT_EQ(heap.slabs[c], capacity) << number;
    flush_heap(heap);
    EXPECT_EQ(heap.slabs[c], 0U);
    expect_sound();
  }
}

TS_HEAP_TEST(SingleBlockSlabs, AreNotUsedForZeroedBlocks) {
  auto* const p = static_cast<unsigned char*>(engine.allocate_zeroed(3 * page_bytes));
  EXPECT_EQ(span_of(p).state, SpanState::large) << "clean memory is not written to";
  EXPECT_TRUE(std::all_of(p, p + 3 * page_bytes, [](unsigned char b) { return b == 0; }));
  EXPECT_TRUE(engine.resize(p, 4 * page_bytes));
  EXPECT_TRUE(engine.resize(p, engine::max_shared_bytes + 1));
  EXPECT_FALSE(engine.resize(p, engine::max_shared_bytes)) << "a slab has such blocks";
  release(p);
}

// ---- large blocks ----

TS_HEAP_TEST(LargeBlocks, AnOddLengthIsThatOfWholePages) {
  void* const p = engine.allocate(100'000, without_colour);
  EXPECT_EQ(engine.bytes_of(p), 7 * page_bytes);
  EXPECT_EQ(engine.usable_size(p), 7 * page_bytes);
  EXPECT_TRUE(engine.resize(p, 7 * page_bytes - 5));
  EXPECT_TRUE(engine.resize(p, 40'000));
  EXPECT_EQ(engine.bytes_of(p), 3 * page_bytes);
  EXPECT_FALSE(engine.resize(p, 100)) << "a small block serves better";
  EXPECT_TRUE(engine.resize(p, 1'000'000)) << "nothing lies behind it";
  void* const q = engine.allocate(100'000, without_colour);
  EXPECT_FALSE(engine.resize(p, 2'000'000));
  EXPECT_FALSE(engine.resize(static_cast<std::byte*>(p) + 16, 2'000'000)) << "no block";
  release(p);
  release(q);
  EXPECT_EQ(engine.bytes_of(engine.allocate(0, 1 << 20)), page_bytes);
}

TS_HEAP_TEST(LargeBlocks, MoveWithTheirPages) {
  constexpr std::size_t bytes = std::size_t{512} << 10;
  auto* p = static_cast<unsigned char*>(engine.allocate(bytes, without_colour));
  std::memset(p, 0x33, bytes);
  EXPECT_EQ(engine.move(p, bytes), nullptr) << "no more than it has";
  EXPECT_EQ(engine.move(p, address_limit * 2), nullptr);
  void* const small = engine.allocate(200'000, without_colour);
  EXPECT_EQ(engine.move(small, 300'000), nullptr) << "copying is cheaper";
  EXPECT_EQ(engine.move(engine.allocate(64, 16), 300'000), nullptr);
  auto* const moved = static_cast<unsigned char*>(engine.move(p, 2 * bytes));
  ASSERT_NE(moved, nullptr);
  EXPECT_NE(moved, p);
  EXPECT_EQ(engine.bytes_of(moved), 2 * bytes);
  EXPECT_GT(span_of(moved).pages, 2 * bytes / page_bytes) << "with a tail to grow into";
  EXPECT_TRUE(std::all_of(moved, moved + bytes, [](unsigned char b) { return b == 0x33; }));
  EXPECT_EQ(span_of(p).state, SpanState::free);
  EXPECT_TRUE(span_of(p).zeroed);
  expect_sound();
  EXPECT_TRUE(engine.resize(moved, 2 * bytes + 1)) << "into the tail";
  expect_sound();
  // A refused move changes nothing.
  const std::size_t touched = page_heap.touched_pages();
  fake_os::refuse(fake_os::Call::move_pages);
  EXPECT_EQ(engine.move(moved, 8 * bytes), nullptr);
  EXPECT_TRUE(std::all_of(moved, moved + bytes, [](unsigned char b) { return b == 0x33; }));
  EXPECT_EQ(page_heap.touched_pages(), touched);
  expect_sound();
  // If the old place is lost, it stays counted as used.
  fake_os::refuse(fake_os::Call::leave);
  auto* const again = static_cast<unsigned char*>(engine.move(moved, 8 * bytes));
  ASSERT_NE(again, nullptr);
  EXPECT_TRUE(std::all_of(again, again + bytes, [](unsigned char b) { return b == 0x33; }));
  EXPECT_EQ(span_of(moved).state, SpanState::large);
  EXPECT_FALSE(engine.is_block(moved, FoundBy::realloc));
  expect_misuse(Misuse::double_free, FoundBy::realloc, moved);
  expect_sound();
  // A system that loses addresses is not asked again.
  fake_os::refuse_nothing();
  fake_os::take_events();
  EXPECT_EQ(engine.move(again, 16 * bytes), nullptr);
  EXPECT_TRUE(fake_os::take_events().empty());
}

TS_HEAP_TEST(LargeBlocks, ARefusedMoveMayLoseThePlaceToMoveTo) {
  constexpr std::size_t bytes = std::size_t{512} << 10;
  auto* const p = static_cast<unsigned char*>(engine.allocate(bytes, without_colour));
  std::memset(p, 0x33, bytes);
  fake_os::refuse(fake_os::Call::move_pages, fake_os::Call::leave);
  EXPECT_EQ(engine.move(p, 2 * bytes), nullptr);
  EXPECT_TRUE(std::all_of(p, p + bytes, [](unsigned char b) { return b == 0x33; }));
  fake_os::refuse_nothing();
  page_heap.trim(0);
  expect_sound();
  EXPECT_EQ(engine.move(p, 2 * bytes), nullptr);
}

TS_HEAP_TEST(LargeBlocks, ThatAreFilledAndGrowByMuchAreCopiedToTouchedMemory) {
  constexpr std::size_t bytes = std::size_t{512} << 10;
  void* const p = engine.allocate(bytes, without_colour);
  void* const between = engine.allocate(bytes, without_colour);
  release(engine.allocate(2 * bytes, without_colour));
  fake_os::answers.touched_pages = [](const std::byte*, std::size_t, std::size_t n) { return n; };
  EXPECT_EQ(engine.move(p, 2 * bytes), nullptr);
  EXPECT_EQ(engine.move(p, bytes + bytes / 4), nullptr);
  EXPECT_NE(engine.move(between, 4 * bytes), nullptr) << "no touched memory is as long";
  fake_os::answers.touched_pages = [](const std::byte*, std::size_t, std::size_t n) {
    return n - 1;
  };
  void* const moved = engine.move(p, 2 * bytes);
  ASSERT_NE(moved, nullptr) << "it is not filled";
  fake_os::answers.touched_pages = [](const std::byte*, std::size_t, std::size_t n) { return n; };
  EXPECT_NE(engine.move(moved, 2 * bytes + bytes / 4), nullptr) << "copies that add up";
}

TS_HEAP_TEST(LargeBlocks, NoneMovesBeyondAllAddresses) {
  constexpr std::size_t bytes = std::size_t{512} << 10;
  void* const p = engine.allocate(bytes, without_colour);
  void* between[40];
  for (std::size_t i = 0; i < std::size(between); ++i) {
    void* const dirty = engine.allocate((i + 20) * page_bytes, without_colour);
    between[i] = engine.allocate(bytes, without_colour);
    release(dirty);
  }
  for (std::size_t tebibytes = 9; tebibytes < 64; ++tebibytes) {
    EXPECT_EQ(engine.move(p, tebibytes << 40), nullptr);
    EXPECT_FALSE(engine.resize(between[39], tebibytes << 40));
  }
  EXPECT_EQ(engine.move(p, ~std::size_t{0}), nullptr);
}

TS_HEAP_TEST(LargeBlocks, AtTheEndGrowDownwardsIfThereIsRoom) {
  constexpr std::size_t bytes = std::size_t{512} << 10;
  void* const below = engine.allocate(8 * bytes, without_colour);
  void* const last = engine.allocate(bytes, without_colour);
  EXPECT_TRUE(engine.resize(last, 2 * bytes)) << "the end is all that there is";
  release(below);
  page_heap.trim(0);
  EXPECT_FALSE(engine.resize(last, 4 * bytes));
  EXPECT_TRUE(page_heap.resize(&span_of(last), span_of(last).pages + 1)) << "where it cannot move";
  void* const moved = engine.move(last, 4 * bytes);
  EXPECT_EQ(moved, below);
  EXPECT_TRUE(engine.resize(moved, 5 * bytes));
}

TS_HEAP_TEST(LargeBlocks, NoneMovesWhileMemoryIsLocked) {
  constexpr std::size_t bytes = std::size_t{512} << 10;
  const auto trim_in_vain = [] {
    fake_os::refuse(fake_os::Call::discard);
    page_heap.trim(0);
    fake_os::refuse_nothing();
  };
  void* blocks[6];
  for (void*& block : blocks) block = engine.allocate(bytes, without_colour);
  void* const p = blocks[5];
  release(blocks[0]);
  trim_in_vain();
  ASSERT_NE(engine.move(blocks[1], 4 * bytes), nullptr) << "one block may be locked";
  release(blocks[3]);
  trim_in_vain();
  for (int i = 2; i < 8192; ++i) ASSERT_EQ(engine.move(p, 4 * bytes), nullptr);
  EXPECT_NE(engine.move(p, 4 * bytes), nullptr) << "after the next look";
}

// The bytes of each range remapped since the last call.
Sizes remapped() {
  Sizes bytes;
  for (const fake_os::Event& e : fake_os::take_events())
    if (e.call == fake_os::Call::remap && e.begin != nullptr) bytes.push_back(e.bytes);
  return bytes;
}

// Moves this many blocks of 512 KiB to 1 MiB. The last ones moved stay dirty.
bool move_blocks(unsigned times) {
  engine::Engine engine;
  constexpr std::size_t bytes = std::size_t{512} << 10;
  for (unsigned i = 0; i < times; ++i) {
    page_heap.trim(0);
    void* const p = engine.allocate(bytes, without_colour);
    void* const moved = engine.move(p, 2 * bytes);
    release(moved != nullptr ? moved : p);
    if (moved == nullptr) return false;
  }
  return true;
}

TS_HEAP_TEST(LargeBlocks, WhereManyPagesMovedComeNewMappings) {
  constexpr std::size_t bytes = std::size_t{512} << 10;
  ASSERT_TRUE(move_blocks(512));
  EXPECT_EQ(remapped(), Sizes{}) << "few moves cost nothing";
  ASSERT_TRUE(move_blocks(1));
  page_heap.trim(0);
  remapped();
  void* const p = engine.allocate(bytes, without_colour);
  void* const moved = engine.move(p, 2 * bytes);
  ASSERT_NE(moved, nullptr);
  EXPECT_EQ(remapped(), Sizes{bytes}) << "where the pages came from";
  EXPECT_TRUE(span_of(p).zeroed);
  const std::size_t longest = span_of(moved).pages * page_bytes;
  release(moved);
  EXPECT_EQ(remapped(), Sizes{}) << "memory that is dirty is as it was";
  page_heap.trim(0);
  EXPECT_EQ(remapped(), Sizes{longest});
  expect_sound();
  // Memory lost that way is not used again.
  release(engine.allocate(bytes, without_colour));
  fake_os::refuse(fake_os::Call::remap);
  page_heap.trim(0);
  fake_os::refuse_nothing();
  EXPECT_EQ(page_heap.dirty_pages(), 0U);
  expect_sound();
  std::memset(engine.allocate(8 * bytes, without_colour), 0x33, 8 * bytes);
  EXPECT_EQ(remapped(), Sizes{});
  EXPECT_FALSE(move_blocks(1)) << "before the next look";
  EXPECT_EQ(remapped(), Sizes{});
}

TS_ENGINE_TEST(LargeBlocks, NewMappingsAreRefusedHugePagesAsAllMemoryIs) {
  current_options.huge_pages = HugePages::never;
  const As as{make_heap()};
  ASSERT_TRUE(move_blocks(513));
  fake_os::take_events();
  page_heap.trim(0);
  std::vector<std::pair<const std::byte*, std::size_t>> remaps;
  std::vector<std::pair<const std::byte*, std::size_t>> refusals;
  for (const fake_os::Event& e : fake_os::take_events()) {
    if (e.call == fake_os::Call::remap) remaps.emplace_back(e.begin, e.bytes);
    if (e.call == fake_os::Call::refuse_huge_pages) refusals.emplace_back(e.begin, e.bytes);
  }
  EXPECT_FALSE(remaps.empty());
  EXPECT_EQ(remaps, refusals);
}

TS_HEAP_TEST(LargeBlocks, NoneMovesWhileMappingsAreFew) {
  fake_os::answers.has_half_of_mappings = false;
  ASSERT_TRUE(move_blocks(8191));
  for (int i = 0; i < 8192; ++i) ASSERT_FALSE(move_blocks(1)) << i;
  fake_os::answers.has_half_of_mappings = true;
  EXPECT_TRUE(move_blocks(2));
}

TS_HEAP_TEST(LargeBlocks, AMoveWithoutMemoryChangesNothing) {
  constexpr std::size_t bytes = std::size_t{512} << 10;
  void* const p = engine.allocate(bytes, without_colour);
  fake_os::refuse_memory();
  EXPECT_EQ(engine.move(p, std::size_t{1} << 30), nullptr);
  // Without a tail, if the system grants that much.
  fake_os::refuse_if([](const fake_os::Request& r) {
    return r.call == fake_os::Call::commit && r.bytes > 8 * bytes;
  });
  void* const moved = engine.move(p, 8 * bytes);
  ASSERT_NE(moved, nullptr);
  EXPECT_EQ(span_of(moved).pages, 8 * bytes / page_bytes);
}

std::size_t offset_in_page(const void* p) { return address_of(p) % page_bytes; }

TS_HEAP_TEST(LargeBlocks, BeginInDifferentLines) {
  // A set of an L1 cache has at least 8 ways.
  for (const std::size_t bytes :
       {std::size_t{66'000}, std::size_t{80'000}, std::size_t{131'072}, std::size_t{800'000},
        std::size_t{1} << 20, std::size_t{8'000'000}}) {
    std::map<std::size_t, int> lines;
    for (int i = 0; i < 18; ++i) {
      void* const p = engine.allocate(bytes, engine::line_bytes);
      EXPECT_EQ(address_of(p) % engine::line_bytes, 0U);
      EXPECT_GE(offset_in_page(p), engine::line_bytes);
      EXPECT_LE(offset_in_page(p), engine::max_colour);
      EXPECT_GE(engine.bytes_of(p), bytes);
      ++lines[offset_in_page(p)];
    }
    for (const auto& [offset, count] : lines) EXPECT_LE(count, 4) << bytes << " at " << offset;
    EXPECT_GE(lines.size(), 9U) << bytes;
  }
  // Blocks that replace each other at once, or that ask for an alignment, get no colour.
  EXPECT_EQ(offset_in_page(engine.allocate(engine::max_small_bytes, 16)), 0U);
  EXPECT_EQ(offset_in_page(engine.allocate(1'000'000, 4096)) % 4096, 0U);
}

TS_HEAP_TEST(LargeBlocks, KeepTheirColourWhereverTheyGo) {
  constexpr std::size_t bytes = std::size_t{512} << 10;
  auto* const p = static_cast<unsigned char*>(engine.allocate(bytes, 16));
  const std::size_t colour = offset_in_page(p);
  engine.allocate(bytes, 16);  // whatever follows it
  std::memset(p, 0x33, bytes);
  EXPECT_TRUE(engine.is_block(p, FoundBy::realloc));
  auto* const moved = static_cast<unsigned char*>(engine.move(p, 4 * bytes));
  ASSERT_NE(moved, nullptr);
  EXPECT_NE(moved, p);
  EXPECT_EQ(offset_in_page(moved), colour) << "the pages moved as they are";
  EXPECT_TRUE(std::all_of(moved, moved + bytes, [](unsigned char b) { return b == 0x33; }));
  EXPECT_GE(engine.bytes_of(moved), 4 * bytes);
  EXPECT_TRUE(engine.resize(moved, 3 * page_bytes - engine::max_colour));
  EXPECT_EQ(engine.bytes_of(moved), 3 * page_bytes - engine::max_colour);
  EXPECT_TRUE(engine.resize(moved, 3 * page_bytes)) << "by a page";
  EXPECT_EQ(engine.bytes_of(moved), 4 * page_bytes - engine::max_colour);
  expect_sound();
  release(moved);
  const void* without_colour = nullptr;
  for (int i = 0; i < 100 && without_colour != moved - colour; ++i)
    without_colour = engine.allocate_zeroed(4 * page_bytes);
  ASSERT_EQ(without_colour, moved - colour);
  EXPECT_FALSE(engine.resize(moved, bytes)) << "no block begins there";
  release(moved);
  expect_misuse(Misuse::no_beginning, FoundBy::free, moved);
  engine.is_block(moved, FoundBy::realloc);
  expect_misuse(Misuse::no_beginning, FoundBy::realloc, moved);
}

// ---- the engine as a whole ----

TS_HEAP_TEST(Engine, GrowsByAnEighthAtLeast) {
  EXPECT_EQ(engine.size_to_grow_into(1000, 1001), 1125U);
  EXPECT_EQ(engine.size_to_grow_into(1000, 1125), 1125U);
  EXPECT_EQ(engine.size_to_grow_into(1000, 900), 900U);
  EXPECT_EQ(engine.size_to_grow_into(32768, 32769), 32769U);
}

TS_HEAP_TEST(Engine, ASmallBlockStaysWhereItIsUntilItWouldBeHalfEmpty) {
  void* const p = engine.allocate(1024, 16);
  EXPECT_TRUE(engine.resize(p, 1024));
  EXPECT_TRUE(engine.resize(p, 513));
  EXPECT_FALSE(engine.resize(p, 512));
  EXPECT_FALSE(engine.resize(p, 1025));
  EXPECT_TRUE(engine.resize(engine.allocate(64, 16), 1));
}

TS_HEAP_TEST(Engine, APurgeDelayOfZeroKeepsNothingAndANegativeOneAll) {
  const auto dirty_after_release_of = [&](std::size_t bytes) {
    void* const p = engine.allocate(bytes, 16);
    std::memset(p, 1, bytes);
    release(p);
    expect_sound();
    return engine::PageHeapTest::dirty().pages();
  };
  ASSERT_TRUE(set_option("PURGE_DELAY", "0"));
  EXPECT_EQ(dirty_after_release_of(std::size_t{1} << 20), 0U);
  for (const char* const never : {"-1", "never"}) {
    ASSERT_TRUE(set_option("PURGE_DELAY", never));
    EXPECT_GE(dirty_after_release_of(std::size_t{96} << 20), (std::size_t{96} << 20) / page_bytes);
    EXPECT_TRUE(engine.trim(0)) << "but a trim purges";
    EXPECT_EQ(engine::PageHeapTest::dirty().pages(), 0U);
  }
  ASSERT_TRUE(set_option("PURGE_DELAY", "3600000"));
  EXPECT_NE(dirty_after_release_of(std::size_t{96} << 20), 0U);
  EXPECT_TRUE(engine.trim(0));
  ASSERT_TRUE(set_option("PURGE_DELAY", "auto"));
  EXPECT_LT(dirty_after_release_of(std::size_t{96} << 20), (std::size_t{96} << 20) / page_bytes);
}

// One in how many OS pages of the memory that is resident.
std::size_t resident_pages(const void* begin, const void* end) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));  // whatever fake_os says
  auto* const first = reinterpret_cast<void*>(align_down(address_of(begin), page));
  std::vector<unsigned char> is_there((address_of(end) - address_of(first) + page - 1) / page);
  EXPECT_EQ(mincore(first, is_there.size() * page, is_there.data()), 0);
  return static_cast<std::size_t>(std::count_if(is_there.begin(), is_there.end(),
                                                [](unsigned char p) { return (p & 1) != 0; }));
}

TS_HEAP_TEST(Engine, ATrimGivesBackTheTablesOfFreeMemory) {
  const auto resident = [] {
    const std::size_t top = engine::PageHeapTest::top();
    return resident_pages(page_map.pages, page_map.pages + top) +
           resident_pages(page_map.spans, page_map.spans + top) +
           resident_pages(page_map.uses, page_map.uses + top);
  };
  constexpr std::size_t bytes = 15'000;  // a slab each
  std::vector<void*> blocks;
  const auto fill = [&] {
    for (void*& p : blocks) p = engine.allocate(bytes, 16);
  };
  blocks.resize(10'000);
  fill();
  void* const first = blocks.front();
  const std::size_t full = resident();
  for (std::size_t i = 1; i < blocks.size(); ++i) release(blocks[i]);
  engine.trim(0);
  expect_sound();
  // With long OS pages, fewer of them fit entirely into such memory.
  EXPECT_LT(resident(), full / (os::page_bytes() <= page_bytes ? 10 : 4)) << "of " << full;
  EXPECT_TRUE(engine.owns(first));
  EXPECT_FALSE(engine.owns(blocks.back()));
  blocks.front() = nullptr;
  fill();
  expect_sound();
  EXPECT_GE(resident(), full - full / 10);
  for (void* const p : blocks) release(p);
  release(first);
  engine.trim(0);
}

}  // namespace
}  // namespace ts::testing
