// Walks, statistics and maps of the engine, compared with what the test did.
#include <iostream>
#include <map>
#include <set>

#include "core/heap_lifecycle.h"
#include "core/view.h"
#include "engine/span_map.h"
#include "features/sparse/slab_purge.h"
#include "unit/engine/fresh_engine.h"
#include "unit/engine/page_heap_access.h"

namespace ts::testing {
namespace {

// What a walk reports for each block.
std::map<const void*, BlockView> walk() {
  std::map<const void*, BlockView> blocks;
  const auto visit = [](const BlockView& block, void* to) {
    auto& into = *static_cast<std::map<const void*, BlockView>*>(to);
    EXPECT_TRUE(into.empty() || into.rbegin()->first < block.payload) << "in order of addresses";
    into.insert({block.payload, block});
    return true;
  };
  EXPECT_TRUE(engine::Engine{}.walk(visit, &blocks));
  return blocks;
}

TS_ENGINE_TEST(Inspect, AWalkKnowsTheStateOfEachBlock) {
  ThreadHeap& heap = make_heap();
  ThreadHeap& other = make_heap();
  std::vector<void*> blocks;
  for (int i = 0; i < 400; ++i) blocks.push_back(allocate(heap, 48));
  const auto state_of = [&](std::size_t i) { return walk().at(blocks[i]).state; };
  EXPECT_EQ(state_of(0), BlockState::used);
  EXPECT_EQ(walk().at(blocks[0]).owner, 1U);
  EXPECT_EQ(walk().at(blocks[0]).bytes, 48U);
  release(heap, blocks[0]);
  EXPECT_EQ(state_of(0), BlockState::cached) << "in a bin";
  flush_bin_of(heap, engine::class_for(48));
  EXPECT_EQ(state_of(0), BlockState::free) << "on its slab's list";
  release(other, blocks[1]);
  EXPECT_EQ(state_of(1), BlockState::cached) << "in a batch";
  engine::flush_batches(other);
  EXPECT_EQ(state_of(1), BlockState::cached) << "pending";
  collect_from(heap);
  EXPECT_EQ(state_of(1), BlockState::free);

  void* const large = allocate(heap, 200'000, without_colour);
  void* const stop = allocate(heap, 200'000, without_colour);
  void* const cached = allocate(heap, 3 * page_bytes, without_colour);
  release(heap, cached);
  EXPECT_EQ(walk().at(large).state, BlockState::used);
  EXPECT_EQ(walk().at(large).bytes, 13 * page_bytes);
  EXPECT_EQ(walk().at(cached).state, BlockState::cached);
  release(heap, large);
  EXPECT_EQ(walk().at(large).state, BlockState::free);
  EXPECT_EQ(walk().at(stop).state, BlockState::used);
}

TS_ENGINE_TEST(Inspect, AWalkEndsWhereItsVisitorSays) {
  ThreadHeap& heap = make_heap();
  void* const small = allocate(heap, 48);
  void* const large = allocate(heap, 200'000, without_colour);
  for (const void* const last : {small, large}) {
    struct Visits {
      const void* last;
      int further;
    } visits{last, 0};
    const auto visit = [](const BlockView& block, void* argument) {
      auto& v = *static_cast<Visits*>(argument);
      if (v.last == nullptr) ++v.further;
      if (block.payload == v.last) v.last = nullptr;
      return v.last != nullptr;
    };
    EXPECT_FALSE(engine::Engine{}.walk(visit, &visits));
    EXPECT_EQ(visits.further, 0);
  }
}

TS_HEAP_TEST(Inspect, MeasuresAreSumsOfAWalk) {
  EXPECT_EQ(engine.measures().segment_bytes, 0U);
  EXPECT_EQ(engine.measures().chunks, 0U);
  std::mt19937_64 random{5};
  std::vector<void*> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(engine.allocate(random() % 120'000, 16));
  for (std::size_t i = 0; i < blocks.size(); i += 2) release(blocks[i]);
  const HeapMeasures measures = engine.measures();
  EXPECT_EQ(measures.segment_bytes, engine::PageHeapTest::top() * page_bytes);
  EXPECT_EQ(measures.chunks, 1U);
  EXPECT_EQ(measures.heaps, 1U);
  EXPECT_GT(measures.grow_calls, 0U);
  std::size_t cached_small = 0;
  std::size_t in_use = 0;
  std::size_t large = 0;
  for (const auto& [p, block] : walk()) {
    if (block.state == BlockState::cached && block.owner != 0) cached_small += block.bytes;
    if (block.state != BlockState::used) continue;
    const bool has_colour = block.owner == 0 && address_of(block.payload) % page_bytes != 0;
    const std::size_t bytes = block.bytes + (has_colour ? engine::max_colour : 0);
    in_use += bytes;
    if (block.owner == 0) large += bytes;
  }
  EXPECT_EQ(measures.cached_bytes, cached_small);
  EXPECT_EQ(measures.segment_bytes - measures.free_bytes, in_use);
  EXPECT_EQ(measures.large_bytes, large);
}

TS_ENGINE_TEST(Inspect, AMapHasEachSpanWithItsState) {
  ThreadHeap& heap = make_heap();
  void* const small = allocate(heap, 48);
  void* const large = allocate(heap, 200'000, without_colour);
  void* const freed = allocate(heap, 300'000, without_colour);
  void* const cached = allocate(heap, 3 * page_bytes, without_colour);
  release(heap, freed);
  release(heap, cached);
  std::map<std::uintptr_t, MapExtent> extents;
  const auto visit = [](const MapExtent& extent, void* to) {
    static_cast<std::map<std::uintptr_t, MapExtent>*>(to)->insert({extent.address, extent});
    return true;
  };
  engine::Engine engine;
  EXPECT_TRUE(engine::map_walk_is_safe(&engine));
  EXPECT_TRUE(engine::walk_map(engine, visit, &extents));
  const auto at = [&](const void* p) { return extents.at(address_of(p)); };
  EXPECT_EQ(at(small).state, MapState::mixed);
  EXPECT_EQ(at(small).owner, 1U);
  EXPECT_EQ(at(small).bytes, page_bytes);
  EXPECT_EQ(at(small).used_bytes, 48 * used_by(span_of(small)));
  EXPECT_EQ(at(large).state, MapState::used);
  EXPECT_EQ(at(large).used_bytes, 13 * page_bytes);
  EXPECT_EQ(at(freed).state, MapState::free);
  EXPECT_EQ(at(freed).used_bytes, 0U);
  EXPECT_EQ(at(cached).state, MapState::mixed);
  EXPECT_EQ(at(cached).used_bytes, 3 * page_bytes) << "its bin has the slab's only block";
  int visits = 0;
  const auto end_at_once = [](const MapExtent&, void* count) {
    ++*static_cast<int*>(count);
    return false;
  };
  EXPECT_FALSE(engine::walk_map(engine, end_at_once, &visits));
  EXPECT_EQ(visits, 1);
}

TS_ENGINE_TEST(Inspect, MeasuresTellWhereFreeMemoryIs) {
  ThreadHeap& heap = make_heap();
  ThreadHeap& other = make_heap();
  std::vector<void*> blocks;
  for (int i = 0; i < 400; ++i) blocks.push_back(allocate(heap, 48));
  const HeapMeasures full = engine::measure();
  release(heap, blocks[0]);
  EXPECT_EQ(engine::measure().cached_bytes, full.cached_bytes + 48) << "in a bin";
  flush_bin_of(heap, engine::class_for(48));
  HeapMeasures measures = engine::measure();
  EXPECT_EQ(measures.cached_bytes, 0U);
  EXPECT_EQ(measures.slab_bytes, full.slab_bytes + full.cached_bytes + 48);
  release(other, blocks[1]);
  EXPECT_EQ(engine::measure().cached_bytes, 48U) << "in a batch";
  engine::flush_batches(other);
  EXPECT_EQ(engine::measure().cached_bytes, 0U);
  EXPECT_EQ(engine::measure().waiting_bytes, 48U) << "pending";
  collect_from(heap);
  EXPECT_EQ(engine::measure().waiting_bytes, 0U);
  measures = engine::measure();
  {
    const Guard guard{engine::abandoned_lock};
    engine::abandon(heap, true, engine::pages_of_slabs(heap));
  }
  const HeapMeasures ended = engine::measure();
  EXPECT_EQ(ended.ended_heaps, 1U);
  EXPECT_EQ(ended.heaps, 2U);
  EXPECT_EQ(ended.ended_bytes, measures.slab_bytes);
  EXPECT_EQ(ended.slab_bytes, 0U);
  EXPECT_EQ(ended.free_bytes, measures.free_bytes);
  EXPECT_EQ(ended.page_bytes(), measures.page_bytes());
}

// What find_block() reports for an address.
struct FoundBlock {
  explicit FoundBlock(const void* p) : is_there{engine::find_block(p, block, pages)} {}

  BlockView block{};
  MapExtent pages{};
  bool is_there;
};

TS_ENGINE_TEST(Inspect, ABlockIsFoundByAnyOfItsAddresses) {
  EXPECT_FALSE(FoundBlock{&std::cout}.is_there) << "before the first block";
  ThreadHeap& heap = make_heap();
  ThreadHeap& other = make_heap();
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 400; ++i) blocks.push_back(static_cast<std::byte*>(allocate(heap, 48)));
  for (const std::size_t at : {0, 1, 47}) {
    const FoundBlock found{blocks[7] + at};
    ASSERT_TRUE(found.is_there);
    EXPECT_EQ(found.block.payload, blocks[7]);
    EXPECT_EQ(found.block.bytes, 48U);
    EXPECT_EQ(found.block.state, BlockState::used);
    EXPECT_EQ(found.block.owner, 1U);
    EXPECT_EQ(found.pages.state, MapState::mixed);
    EXPECT_EQ(found.pages.block_bytes, 48U);
    EXPECT_EQ(found.pages.address, address_of(engine::memory_of(engine::slab_of(blocks[7]))));
  }
  release(heap, blocks[7]);
  EXPECT_EQ(FoundBlock{blocks[7]}.block.state, BlockState::free) << "in a bin";
  release(other, blocks[8]);
  EXPECT_EQ(FoundBlock{blocks[8]}.block.state, BlockState::used) << "in a batch";
  engine::flush_batches(other);
  EXPECT_EQ(FoundBlock{blocks[8]}.block.state, BlockState::cached) << "pending";
  collect_from(heap);
  EXPECT_EQ(FoundBlock{blocks[8]}.block.state, BlockState::free);
  const Span& last = *engine::slab_of(blocks.back());
  const std::byte* const fresh = engine::block_at(last, last.carved);
  EXPECT_TRUE(last.carved < last.slab_blocks ? !FoundBlock{fresh}.is_there : true);

  auto* const large = static_cast<std::byte*>(allocate(heap, 200'000, without_colour));
  for (const std::size_t at : {std::size_t{0}, std::size_t{100'000}, 13 * page_bytes - 1}) {
    const FoundBlock found{large + at};
    ASSERT_TRUE(found.is_there);
    EXPECT_EQ(found.block.payload, large);
    EXPECT_EQ(found.block.bytes, 13 * page_bytes);
    EXPECT_EQ(found.pages.state, MapState::used);
  }
  release(heap, large);
  EXPECT_FALSE(FoundBlock{large}.is_there) << "in a free span";
  auto* const coloured = static_cast<std::byte*>(allocate(heap, 200'000));
  EXPECT_FALSE(FoundBlock{coloured - 1}.is_there) << "before the block";
  const FoundBlock last_byte{coloured + 200'000 - 1};
  EXPECT_EQ(last_byte.block.payload, coloured);
  EXPECT_EQ(last_byte.block.bytes, engine::Engine::bytes_of(coloured));
  EXPECT_FALSE(FoundBlock{&heap}.is_there) << "of the engine's own";
}

TS_ENGINE_TEST(Inspect, ABlockInAPurgedPageIsFree) {
  if (engine::os_pages_in_page() <= 1) return;
  ThreadHeap& heap = make_heap();
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(static_cast<std::byte*>(allocate(heap, 848)));
  const HeapMeasures before = engine::measure();
  for (std::size_t i = 1; i < blocks.size(); ++i) release(heap, blocks[i]);
  {
    const engine::HeapHold hold{heap};
    engine::flush(heap);
    engine::hooks::purge_slabs(heap);
  }
  const Span& slab = *engine::slab_of(blocks[0]);
  ASSERT_GT(slab.purged_blocks, 0U);
  EXPECT_EQ(FoundBlock{engine::block_at(slab, 17)}.block.state, BlockState::free);
  EXPECT_EQ(FoundBlock{blocks[0]}.block.state, BlockState::used);
  const HeapMeasures after = engine::measure();
  EXPECT_GT(after.purged_bytes, before.purged_bytes);
  EXPECT_GT(after.returned_bytes, before.returned_bytes);
}

TS_ENGINE_TEST(Inspect, AWalkWithoutMemoryFails) {
  allocate(make_heap(), 48);
  fake_os::refuse(fake_os::Call::map);
  const auto visit = [](const BlockView&, void*) { return true; };
  EXPECT_FALSE(engine::walk_blocks(visit, nullptr));
  EXPECT_FALSE(engine::walk_spans([](const MapExtent&, void*) { return true; }, nullptr));
}

}  // namespace
}  // namespace ts::testing
