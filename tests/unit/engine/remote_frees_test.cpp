// Remote frees, their collection by the owner, and reclaims, on several heaps of one thread.
#include "core/remote_frees.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <thread>

#include "core/reclaim.h"
#include "core/reclaim_all.h"
#include "core/slabs.h"
#include "unit/engine/fresh_engine.h"
#include "unit/engine/page_heap_access.h"

namespace ts::testing {
namespace {

using engine::blocks_in_slab;
using engine::RemoteBatch;

constexpr std::size_t bytes = 48;  // no multiple of a cache line, so remote frees are sent
constexpr unsigned size_class = class_for(bytes);
constexpr const SizeClass& c = size_classes[size_class];

// All blocks of the heap's first slab of the class.
std::vector<void*> fill_slab(ThreadHeap& heap) {
  std::vector<void*> blocks;
  for (std::uint32_t i = 0; i < blocks_in_slab(c, 1); ++i) blocks.push_back(allocate(heap, bytes));
  EXPECT_EQ(heap.slabs[size_class], 1U);
  return blocks;
}

const RemoteBatch& batch_of(const ThreadHeap& heap, const void* p) {
  return heap.batches[engine::page_of(p) % engine::batch_count];
}

void release_at_once(void* p) {
  const As as{engine::ended_heap};
  release(p);
}

TS_ENGINE_TEST(RemoteFrees, GatherInABatchThatIsSentWhenFull) {
  ThreadHeap& owner = make_heap();
  ThreadHeap& other = make_heap();
  const std::vector<void*> blocks = fill_slab(owner);
  const Span& slab = span_of(blocks[0]);
  ASSERT_EQ(c.carve_blocks, 64U);
  for (std::uint32_t i = 0; i + 1 < c.carve_blocks; ++i) {
    release(other, blocks[i]);
    EXPECT_EQ(batch_of(other, blocks[0]).count, i + 1);
    EXPECT_EQ(pending_of(slab), 0U);
    expect_sound();
  }
  release(other, blocks[63]);
  EXPECT_EQ(batch_of(other, blocks[0]).count, 0U);
  EXPECT_EQ(pending_of(slab), 64U);
  EXPECT_EQ(owner.ready.load(), &slab);
  EXPECT_EQ(used_by(slab), blocks.size());
  expect_sound();
  EXPECT_TRUE(collect_from(owner));
  EXPECT_EQ(owner.ready.load(), nullptr);
  EXPECT_EQ(pending_of(slab), 0U);
  EXPECT_EQ(used_by(slab), blocks.size() - 64);
  EXPECT_EQ(engine::count_free_blocks(slab), 64U);
  EXPECT_TRUE(is_listed(slab));
  expect_sound();
  EXPECT_FALSE(collect_from(owner)) << "there is nothing left";
}

TS_ENGINE_TEST(RemoteFrees, AnotherWordOrSlabSendsTheBatchBefore) {
  ThreadHeap& owner = make_heap();
  ThreadHeap& other = make_heap();
  const std::vector<void*> blocks = fill_slab(owner);
  const Span& slab = span_of(blocks[0]);
  release(other, blocks[0]);
  release(other, blocks[1]);
  release(other, blocks[64]);  // of the next word
  EXPECT_EQ(pending_of(slab), 2U);
  EXPECT_EQ(batch_of(other, blocks[0]).word, 1U);
  EXPECT_EQ(batch_of(other, blocks[0]).count, 1U);
  expect_sound();
  // From a slab with the same table slot. (Meanwhile the owner's refills collect.)
  std::vector<void*> further;
  const Span* slab_there = nullptr;
  while (slab_there == nullptr) {
    further.push_back(allocate(owner, bytes));
    const Span& at = span_of(further.back());
    if (&at != &slab && static_cast<std::size_t>(&at - &slab) % engine::batch_count == 0)
      slab_there = &at;
  }
  EXPECT_EQ(pending_of(slab), 0U);
  release(other, further.back());
  EXPECT_EQ(pending_of(slab), 1U);
  EXPECT_EQ(batch_of(other, blocks[0]).slab, slab_there);
  expect_sound();
  engine::flush_batches(other);
  EXPECT_EQ(pending_of(*slab_there), 1U);
  EXPECT_EQ(owner.ready.load(), slab_there);
  EXPECT_EQ(engine::remote_frees_of(slab_there).next_ready, &slab);
  expect_sound();
  EXPECT_TRUE(collect_from(owner));
}

TS_ENGINE_TEST(RemoteFrees, OfAThreadWithoutAHeapAreSentAtOnce) {
  ThreadHeap& owner = make_heap();
  const std::vector<void*> blocks = fill_slab(owner);
  errno = 7;
  release_at_once(blocks[5]);
  EXPECT_EQ(errno, 7);
  EXPECT_EQ(pending_of(span_of(blocks[0])), 1U);
  expect_sound();
  release_at_once(static_cast<std::byte*>(blocks[6]) + 16);
  expect_misuse(Misuse::no_beginning, FoundBy::free, static_cast<std::byte*>(blocks[6]) + 16);
}

TS_ENGINE_TEST(RemoteFrees, OfBlocksOfWholeCacheLinesStayWhereTheyAreFreed) {
  ThreadHeap& owner = make_heap();
  ThreadHeap& other = make_heap();
  const unsigned k = class_for(1024);
  ASSERT_EQ(size_classes[k].block_bytes % cache_line_bytes, 0U);
  // Not in a thread that never allocated such blocks: it would only hoard them.
  void* const early = allocate(owner, 1024);
  release(other, early);
  EXPECT_EQ(engine::first_block(other.bins[k]), nullptr);
  engine::flush_batches(other);
  EXPECT_EQ(pending_of(span_of(early)), 1U);
  use_class_of(other, 1024);
  void* const p = allocate(owner, 1024);
  release(other, p);
  EXPECT_EQ(other.bins[k].head, p);
  release(other, p);
  expect_misuse(Misuse::double_free, FoundBy::free, p);
  expect_sound();
  EXPECT_EQ(allocate(other, 1024), p);
  // But not if the bin has no capacity left.
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(allocate(owner, 1024));
  for (void* const q : blocks) release(other, q);
  EXPECT_EQ(other.bins[k].capacity_left, 0);
  expect_sound();
  std::uint32_t in_batches = 0;
  for (const RemoteBatch& batch : other.batches) in_batches += batch.count;
  std::uint32_t pending = 0;
  for (void* const q : blocks) pending = std::max(pending, pending_of(*engine::slab_of(q)));
  EXPECT_GT(in_batches + pending, 0U);
}

TS_ENGINE_TEST(RemoteFrees, OfLongSlabsHaveABitForEachBlock) {
  ThreadHeap& owner = make_heap();
  ThreadHeap& other = make_heap();
  const unsigned k = long_class();
  std::vector<void*> blocks;
  for (std::uint32_t i = 0; i < 1 + 2 * blocks_in_slab(size_classes[k], size_classes[k].slab_pages);
       ++i)
    blocks.push_back(allocate(owner, size_classes[k].block_bytes));
  for (void* const p : blocks) {
    release(other, p);
    expect_sound();
  }
  engine::flush_batches(other);
  flush_heap(other);
  expect_sound();
  flush_heap(owner);
  EXPECT_EQ(owner.slabs[k], 0U);
}

// ---- misuse ----

// The next free of the block cannot see the previous one, as when two threads free it at the same
// time.
void* forgotten(void* p) { return engine::clear_key(static_cast<engine::Block*>(p)); }

// By the owner at once; by others, which do not read the block, when the owner collects.
TS_ENGINE_TEST(RemoteFrees, OfABlockThatItsOwnerHasAsFreeAreNoticed) {
  ThreadHeap& owner = make_heap();
  ThreadHeap& other = make_heap();
  const std::vector<void*> blocks = fill_slab(owner);
  const Span& slab = span_of(blocks[0]);
  const auto expect_double_frees = [&](void* p) {
    release(owner, p);
    expect_misuse(Misuse::double_free, FoundBy::free, p);
    const std::uint32_t used = used_by(slab);
    release(other, p);
    engine::flush_batches(other);
    expect_no_misuse();
    EXPECT_TRUE(collect_from(owner));
    expect_misuse(Misuse::double_free, FoundBy::a_later_call, p);
    release_at_once(p);
    EXPECT_TRUE(collect_from(owner));
    expect_misuse(Misuse::double_free, FoundBy::a_later_call, p);
    EXPECT_EQ(used_by(slab), used);
  };
  release(owner, blocks[0]);  // into its bin
  expect_double_frees(blocks[0]);
  release(other, blocks[1]);
  engine::flush_batches(other);
  EXPECT_TRUE(collect_from(owner));  // onto its slab's list
  expect_double_frees(blocks[1]);
}

TS_ENGINE_TEST(RemoteFrees, ADoubleFreeIsNoticedInTheBatchTheWordOrTheCollection) {
  ThreadHeap& owner = make_heap();
  ThreadHeap& other = make_heap();
  ThreadHeap& third = make_heap();
  const std::vector<void*> blocks = fill_slab(owner);
  Span& slab = span_of(blocks[0]);
  // In the batch.
  release(other, blocks[0]);
  release(other, blocks[0]);
  expect_misuse(Misuse::double_free, FoundBy::free, blocks[0]);
  // In the slab's word, when a second batch is sent: only blocks that are not repeated count.
  release(third, blocks[0]);
  release(third, blocks[1]);
  engine::flush_batches(other);
  engine::flush_batches(third);
  expect_misuse(Misuse::double_free, FoundBy::a_later_call, blocks[0]);
  EXPECT_EQ(pending_of(slab), 2U);
  release_at_once(blocks[1]);
  expect_misuse(Misuse::double_free, FoundBy::free, blocks[1]);
  EXPECT_EQ(pending_of(slab), 2U);
  expect_sound();
  EXPECT_TRUE(collect_from(owner));
  EXPECT_EQ(engine::count_free_blocks(slab), 2U);
  expect_sound();
  // When the owner collects a block that it freed itself.
  release_at_once(blocks[9]);
  release(owner, blocks[9]);
  release(owner, blocks[10]);
  const std::uint32_t used = used_by(slab);
  EXPECT_TRUE(collect_from(owner));
  expect_misuse(Misuse::double_free, FoundBy::a_later_call, blocks[9]);
  EXPECT_EQ(used_by(slab), used);
}

TS_ENGINE_TEST(RemoteFrees, PlacesWithoutABlockAreNoticed) {
  ThreadHeap& owner = make_heap();
  ThreadHeap& other = make_heap();
  auto* const p = static_cast<std::byte*>(allocate(owner, bytes));
  Span& slab = span_of(p);
  release(other, p + 8);
  expect_misuse(Misuse::no_beginning, FoundBy::free, p + 8);
  // Not carved yet: the owner detects it.
  ASSERT_LT(slab.carved, slab.slab_blocks);
  std::byte* const stray = engine::block_at(slab, slab.carved);
  release_at_once(stray);
  const std::uint32_t used = used_by(slab);
  EXPECT_TRUE(collect_from(owner));
  expect_misuse(Misuse::no_beginning, FoundBy::a_later_call, stray);
  EXPECT_EQ(used_by(slab), used);
}

TS_ENGINE_TEST(RemoteFrees, BitsThatAForkCutOffAreDropped) {
  ThreadHeap& owner = make_heap();
  ThreadHeap& other = make_heap();
  const std::vector<void*> blocks = fill_slab(owner);
  release(other, blocks[0]);
  auto& batch = const_cast<RemoteBatch&>(batch_of(other, blocks[0]));
  batch.count = 0;  // the bit is set, but not counted
  release(other, blocks[64]);
  EXPECT_EQ(pending_of(span_of(blocks[0])), 0U);
  EXPECT_EQ(std::popcount(batch.bits), 1);
  EXPECT_EQ(batch.count, 1U);
}

// ---- reclaims ----

// Slabs whose blocks are all freed by others while their owner is idle.
struct Blocked {
  ThreadHeap& owner = make_heap();
  ThreadHeap& other = make_heap();
  std::vector<void*> blocks;

  explicit Blocked(std::uint32_t slabs) {
    for (std::uint32_t i = 0; i < slabs * blocks_in_slab(c, 1); ++i)
      blocks.push_back(allocate(owner, bytes));
    flush_bin_of(owner, size_class);
    EXPECT_EQ(owner.slabs[size_class], slabs);
  }
  void free_all() {
    for (void* const p : blocks) release(other, p);
    engine::flush_batches(other);
  }
};

TS_ENGINE_TEST(Reclaim, TakesSlabsThatOthersFreedFromABlockedOwner) {
  // A flush sends the last batches of 32 slabs, and reclaims nothing.
  constexpr std::uint32_t slabs = 64 + engine::batch_count;
  Blocked heaps{slabs};
  heaps.free_all();
  EXPECT_LE(heaps.owner.slabs[size_class], slabs - 64) << "64 pages make a reclaim worth it";
  expect_sound();
  EXPECT_TRUE(engine::reclaim_all());
  EXPECT_EQ(heaps.owner.slabs[size_class], 0U);
  EXPECT_EQ(heaps.owner.ready.load(), nullptr);
  EXPECT_EQ(heaps.owner.partial[size_class], nullptr);
  expect_sound();
  EXPECT_FALSE(engine::reclaim_all());
  // Their remote frees are all zero again, so the memory can become another slab.
  const std::vector<void*> again = fill_slab(heaps.owner);
  for (void* const p : again) release_at_once(p);
}

TS_ENGINE_TEST(Reclaim, FewerPagesAreLeftToTheOwner) {
  constexpr std::uint32_t slabs = 63 + engine::batch_count;
  Blocked heaps{slabs};
  heaps.free_all();
  EXPECT_EQ(heaps.owner.slabs[size_class], slabs);
  expect_sound();
  EXPECT_TRUE(collect_from(heaps.owner));
  EXPECT_EQ(heaps.owner.reclaimable_pages.load(), 0);
  EXPECT_LE(heaps.owner.slabs[size_class], 1U);
}

TS_ENGINE_TEST(Reclaim, AHeldHeapIsLeftAlone) {
  Blocked heaps{10};
  heaps.free_all();
  {
    const HeapHold hold{heaps.owner};
    engine::reclaim(heaps.owner);
    EXPECT_FALSE(engine::reclaim_all());
  }
  EXPECT_EQ(heaps.owner.slabs[size_class], 10U);
  {
    const Guard guard{engine::reclaim_lock};
    engine::reclaim(heaps.owner);
  }
  EXPECT_EQ(heaps.owner.slabs[size_class], 10U);
  engine::reclaim(heaps.owner);
  EXPECT_EQ(heaps.owner.slabs[size_class], 0U);
  engine::reclaim(heaps.owner);  // nothing is ready
}

TS_ENGINE_TEST(Reclaim, SlabsWithBlocksInUseGoBackOntoTheStack) {
  Blocked heaps{30};
  // One block of every third slab stays in use, and one of every fifth stays in a bin of the owner.
  std::vector<void*> stay;
  std::uint32_t slabs_left = 0;
  for (std::size_t slab = 0; slab < 30; ++slab) {
    for (std::size_t i = 0; i < blocks_in_slab(c, 1); ++i) {
      void* const p = heaps.blocks[slab * blocks_in_slab(c, 1) + i];
      if (i == 0 && slab % 3 == 0) {
        stay.push_back(p);
      } else if (i == 1 && slab % 5 == 0) {
        release(heaps.owner, p);
      } else {
        release(heaps.other, p);
      }
    }
    slabs_left += slab % 3 == 0 || slab % 5 == 0 ? 1 : 0;
  }
  engine::flush_batches(heaps.other);
  expect_sound();
  EXPECT_TRUE(engine::reclaim_all());
  EXPECT_EQ(heaps.owner.slabs[size_class], slabs_left);
  EXPECT_LT(heaps.owner.reclaimable_pages.load(), 0) << "the next reclaim begins later";
  expect_sound();
  EXPECT_FALSE(engine::reclaim_all());
  expect_sound();
  for (void* const p : stay) release(heaps.other, p);
  engine::flush_batches(heaps.other);
  EXPECT_TRUE(engine::reclaim_all());
  expect_sound();
  flush_heap(heaps.owner);
  EXPECT_EQ(heaps.owner.slabs[size_class], 0U);
}

TS_ENGINE_TEST(Reclaim, OfAllHeapsTakesTheEmptySlabsThatTheyKeep) {
  ThreadHeap& heap = make_heap();
  const auto keep_empty = [&heap](std::size_t size) {
    release(heap, allocate(heap, size));
    flush_bin_of(heap, engine::class_for(size));
    return heap.slabs[engine::class_for(size)];
  };
  EXPECT_EQ(keep_empty(bytes), 1U);
  EXPECT_EQ(keep_empty(16), 1U);
  void* const p = allocate(heap, 100);
  engine::reclaim(heap);
  EXPECT_EQ(heap.slabs[size_class], 1U) << "it goes with those that others emptied";
  {
    const HeapHold hold{heap};
    EXPECT_FALSE(engine::reclaim_all());
  }
  EXPECT_TRUE(engine::reclaim_all());
  EXPECT_EQ(heap.slabs[size_class], 0U);
  EXPECT_EQ(heap.slabs[engine::class_for(16)], 0U);
  EXPECT_EQ(heap.slabs[engine::class_for(100)], 1U) << "a block of it is in use";
  EXPECT_FALSE(engine::reclaim_all());
  expect_sound();
  release(heap, p);
  EXPECT_EQ(keep_empty(bytes), 1U);
  // A block freed twice is pending, though none is used.
  ends_sound = false;
  Span& slab = *heap.partial[size_class];
  void* const freed = engine::memory_of(&slab);
  release_at_once(forgotten(freed));
  EXPECT_FALSE(engine::reclaim_all());
  EXPECT_EQ(heap.slabs[size_class], 1U);
}

TS_ENGINE_TEST(Reclaim, NumbersThatDoNotFitAreLeftToTheOwner) {
  Blocked heaps{3};
  heaps.free_all();
  std::vector<Span*> slabs;
  for (std::size_t i = 0; i < 3; ++i)
    slabs.push_back(&span_of(heaps.blocks[i * blocks_in_slab(c, 1)]));
  // A bit past the carved blocks; a missing bit; a wrong count.
  const std::uint32_t blocks = blocks_in_slab(c, 1);
  ASSERT_NE(blocks % 64, 0U);
  auto& last_word = engine::remote_word_of(slabs[0], blocks / 64);
  last_word.fetch_or(std::uint64_t{1} << 63);
  engine::remote_word_of(slabs[1], 0).fetch_and(~std::uint64_t{1});
  use_of(*slabs[2]).used.fetch_add(1);
  EXPECT_FALSE(engine::reclaim_all());
  EXPECT_EQ(heaps.owner.slabs[size_class], 3U);
  last_word.fetch_and(~(std::uint64_t{1} << 63));
  engine::remote_word_of(slabs[1], 0).fetch_or(1);
  use_of(*slabs[2]).used.fetch_sub(1);
  EXPECT_TRUE(engine::reclaim_all());
  EXPECT_EQ(heaps.owner.slabs[size_class], 0U);
}

TS_ENGINE_TEST(Reclaim, AnOwnerWaitsForAReclaimer) {
  // A reclaimer drops its hold before it releases the lock; the owner takes both in turn.
  ThreadHeap& heap = make_heap();
  ASSERT_TRUE(engine::try_hold(heap, engine::Holder::reclaimer));
  engine::reclaim_lock.lock();
  std::atomic<bool> has_hold{false};
  std::thread owner{[&] {
    const HeapHold hold{heap};
    has_hold.store(true);
    EXPECT_EQ(heap.holder.load(), engine::Holder::owner);
  }};
  std::this_thread::sleep_for(std::chrono::milliseconds{5});
  EXPECT_FALSE(has_hold.load());
  engine::end_hold(heap);
  engine::reclaim_lock.unlock();
  owner.join();
  EXPECT_TRUE(has_hold.load());
  EXPECT_EQ(heap.holder.load(), engine::Holder::none);
}

TS_ENGINE_TEST(Reclaim, ARequestForFreshMemoryReclaimsBeforeItFails) {
  Blocked heaps{20};
  heaps.free_all();
  fake_os::refuse_memory();
  std::uint32_t got = 0;
  while (allocate(heaps.other, 16000) != nullptr) ++got;
  EXPECT_GT(got, 20U);
  EXPECT_EQ(heaps.owner.slabs[size_class], 0U);
}

}  // namespace
}  // namespace ts::testing
