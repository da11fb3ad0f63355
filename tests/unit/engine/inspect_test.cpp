// Walks, statistics and maps of the engine, compared with what the test did.
#include <iostream>
#include <map>

#include "core/heap_lifecycle.h"
#include "core/view.h"
#include "engine/span_map.h"
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

// What find_block() reports for an address.
struct FoundBlock {
  explicit FoundBlock(const void* p) : is_there{engine::find_block(p, block, pages)} {}

  BlockView block{};
  MapExtent pages{};
  bool is_there;
};

// In a bin, it is free to an address, and in a batch, in use: only its thread knows more.
TS_ENGINE_TEST(Inspect, WalksAddressesAndMeasuresKnowWhereABlockIs) {
  EXPECT_FALSE(FoundBlock{&std::cout}.is_there) << "before the first block";
  ThreadHeap& heap = make_heap();
  ThreadHeap& other = make_heap();
  const std::vector<void*> blocks = allocate_many(heap, 400, 48);
  flush_bin_of(heap, engine::class_for(48));
  const std::size_t in_slabs = engine::measure().slab_bytes;
  const auto expect = [&](std::size_t i, BlockState walked, BlockState found, std::size_t cached,
                          std::size_t waiting, std::size_t freed) {
    EXPECT_EQ(walk().at(blocks[i]).state, walked);
    EXPECT_EQ(FoundBlock{blocks[i]}.block.state, found);
    const HeapMeasures measures = engine::measure();
    EXPECT_EQ(measures.cached_bytes, cached);
    EXPECT_EQ(measures.waiting_bytes, waiting);
    EXPECT_EQ(measures.slab_bytes, in_slabs + freed);
  };
  using enum BlockState;
  expect(0, used, used, 0, 0, 0);
  EXPECT_EQ(walk().at(blocks[0]).owner, 1U);
  EXPECT_EQ(walk().at(blocks[0]).bytes, 48U);
  release(heap, blocks[0]);  // into the bin
  expect(0, cached, free, 48, 0, 0);
  flush_bin_of(heap, engine::class_for(48));
  expect(0, free, free, 0, 0, 48);
  release(other, blocks[1]);  // into a batch
  expect(1, cached, used, 48, 0, 48);
  engine::flush_batches(other);  // pending
  expect(1, cached, cached, 0, 48, 48);
  collect_from(heap);
  expect(1, free, free, 0, 0, 96);

  void* const large = allocate(heap, 200'000, without_colour);
  void* const stop = allocate(heap, 200'000, without_colour);
  void* const in_bin = allocate(heap, 3 * page_bytes, without_colour);
  release(heap, in_bin);
  EXPECT_EQ(walk().at(large).state, used);
  EXPECT_EQ(walk().at(large).bytes, 13 * page_bytes);
  EXPECT_EQ(walk().at(in_bin).state, cached);
  release(heap, large);
  EXPECT_EQ(walk().at(large).state, free);
  EXPECT_EQ(walk().at(stop).state, used);
}

TS_ENGINE_TEST(Inspect, MemoryOfEndedThreadsIsCountedApart) {
  ThreadHeap& heap = make_heap();
  const std::vector<void*> blocks = allocate_many(heap, 400, 48);
  for (std::size_t i = 0; i < blocks.size(); i += 2) release(heap, blocks[i]);
  flush_heap(heap);
  const HeapMeasures measures = engine::measure();
  abandon(heap, true);
  const HeapMeasures ended = engine::measure();
  EXPECT_EQ(ended.ended_heaps, 1U);
  EXPECT_EQ(ended.heaps, 1U);
  EXPECT_EQ(ended.ended_bytes, measures.slab_bytes);
  EXPECT_EQ(ended.slab_bytes, 0U);
  EXPECT_EQ(ended.free_bytes, measures.free_bytes);
  EXPECT_EQ(ended.page_bytes(), measures.page_bytes());
}

// Of its first byte, its last and one between, and of none of its neighbours.
TS_ENGINE_TEST(Inspect, ABlockIsFoundByAnyOfItsAddresses) {
  ThreadHeap& heap = make_heap();
  auto* const small = static_cast<std::byte*>(allocate(heap, 48));
  auto* const large = static_cast<std::byte*>(allocate(heap, 200'000, without_colour));
  auto* const coloured = static_cast<std::byte*>(allocate(heap, 200'000));
  for (std::byte* const p : {small, large, coloured}) {
    const std::size_t bytes = engine::Engine::bytes_of(p);
    for (const std::size_t at : {std::size_t{0}, bytes / 2, bytes - 1}) {
      const FoundBlock found{p + at};
      ASSERT_TRUE(found.is_there);
      EXPECT_EQ(found.block.payload, p);
      EXPECT_EQ(found.block.bytes, bytes);
      EXPECT_EQ(found.block.owner, p == small ? 1U : 0U);
      EXPECT_EQ(found.pages.state, p == small ? MapState::mixed : MapState::used);
    }
  }
  EXPECT_EQ(FoundBlock{small}.pages.block_bytes, 48U);
  EXPECT_EQ(FoundBlock{small}.pages.address, address_of(engine::memory_of(engine::slab_of(small))));
  EXPECT_FALSE(FoundBlock{coloured - 1}.is_there) << "before the block";
  release(heap, large);
  EXPECT_FALSE(FoundBlock{large}.is_there) << "in a free span";
  EXPECT_FALSE(FoundBlock{&heap}.is_there) << "of the engine's own";
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

TS_ENGINE_TEST(Inspect, AWalkWithoutMemoryFails) {
  allocate(make_heap(), 48);
  fake_os::refuse(fake_os::Call::map);
  const auto visit = [](const BlockView&, void*) { return true; };
  EXPECT_FALSE(engine::walk_blocks(visit, nullptr));
  EXPECT_FALSE(engine::walk_spans([](const MapExtent&, void*) { return true; }, nullptr));
}

}  // namespace
}  // namespace ts::testing
