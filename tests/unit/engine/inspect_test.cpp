// Walks, measures and maps of the engine against what the test did itself.
#include "engine/inspect.h"

#include <map>
#include <set>

#include "engine/span_map.h"
#include "unit/engine/fresh_engine.h"
#include "unit/engine/page_heap_access.h"

namespace ts::testing {
namespace {

using engine::page_bytes;
using engine::ThreadHeap;

// What a walk says of each block.
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

  void* const large = allocate(heap, 200'000);
  void* const stop = allocate(heap, 200'000);
  void* const cached = allocate(heap, 3 * page_bytes);
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
  void* const large = allocate(heap, 200'000);
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

TS_ENGINE_TEST(Inspect, MeasuresAreSumsOfAWalk) {
  ThreadHeap& heap = make_heap();
  const As as{heap};
  engine::Engine engine;
  EXPECT_EQ(engine.measures().segment_bytes, 0U);
  EXPECT_EQ(engine.measures().chunks, 0U);
  std::mt19937_64 random{5};
  std::vector<void*> blocks;
  for (int i = 0; i < 500; ++i) blocks.push_back(engine.allocate(random() % 60'000, 16));
  for (std::size_t i = 0; i < blocks.size(); i += 2) release(blocks[i]);
  const HeapMeasures measures = engine.measures();
  EXPECT_EQ(measures.segment_bytes, engine::PageHeapTest::top() * page_bytes);
  EXPECT_EQ(measures.chunks, 1U);
  EXPECT_EQ(measures.heaps, 1U);
  EXPECT_GT(measures.grow_calls, 0U);
  std::size_t cached_small = 0;
  std::size_t in_use = 0;
  for (const auto& [p, block] : walk()) {
    if (block.state == BlockState::cached && block.owner != 0) cached_small += block.bytes;
    if (block.state == BlockState::used || (block.state == BlockState::cached && block.owner == 0))
      in_use += block.bytes;
  }
  EXPECT_EQ(measures.cached_bytes, cached_small);
  EXPECT_EQ(measures.segment_bytes - measures.free_bytes, in_use);
}

TS_ENGINE_TEST(Inspect, AMapHasEachSpanWithItsState) {
  ThreadHeap& heap = make_heap();
  void* const small = allocate(heap, 48);
  void* const large = allocate(heap, 200'000);
  void* const freed = allocate(heap, 300'000);
  void* const cached = allocate(heap, 3 * page_bytes);
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
  EXPECT_EQ(at(cached).state, MapState::cached);
  EXPECT_EQ(at(cached).used_bytes, 0U);
  int visits = 0;
  const auto end_at_once = [](const MapExtent&, void* count) {
    ++*static_cast<int*>(count);
    return false;
  };
  EXPECT_FALSE(engine::walk_map(engine, end_at_once, &visits));
  EXPECT_EQ(visits, 1);
}

}  // namespace
}  // namespace ts::testing
