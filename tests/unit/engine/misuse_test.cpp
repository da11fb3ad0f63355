// Each kind of misuse, where it is detected, and sampled blocks on guarded pages.
#include "core/misuse.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "features/guard/sampled_guard.h"
#include "os/options.h"
#include "unit/engine/fresh_engine.h"

namespace ts::testing {
namespace {

std::byte* bytes_at(void* p) { return static_cast<std::byte*>(p); }

TS_HEAP_TEST(Misuse, OfASmallBlock) {
  void* const a = engine.allocate(64, 16);
  void* const b = engine.allocate(64, 16);
  void* const between = engine.allocate(64, 16);
  release(a);
  release(a);
  expect_misuse(Misuse::double_free, FoundBy::free, a);
  release(between);
  release(a);
  expect_misuse(Misuse::double_free, FoundBy::free, a);
  EXPECT_FALSE(engine.resize(a, 64)) << "realloc then asks";
  EXPECT_FALSE(engine.is_block(a, FoundBy::realloc));
  expect_misuse(Misuse::double_free, FoundBy::realloc, a);
  EXPECT_EQ(engine.allocate(64, 16), between) << "the list is as it was";
  EXPECT_EQ(engine.allocate(64, 16), a);
  EXPECT_NE(engine.allocate(64, 16), a);
  for (const std::size_t inside : {1, 8, 16, 63}) {
    release(bytes_at(b) + inside);
    expect_misuse(Misuse::no_beginning, FoundBy::free, bytes_at(b) + inside);
  }
  EXPECT_TRUE(engine.is_block(b, FoundBy::free));
  EXPECT_FALSE(engine.is_block(bytes_at(b) + 8, FoundBy::realloc));
  expect_misuse(Misuse::no_beginning, FoundBy::realloc, bytes_at(b) + 8);
  EXPECT_EQ(engine.usable_size(bytes_at(b) + 8), 0U);
  expect_misuse(Misuse::no_beginning, FoundBy::usable_size, bytes_at(b) + 8);
  engine.check_size(b, 64);
  engine.check_size(bytes_at(b) + 8, 1000);
  expect_no_misuse();
  engine.check_size(b, 65);
  expect_misuse(Misuse::wrong_size, FoundBy::sized_free, b);
}

// An address in a slab past the blocks allocated so far: free cannot tell, but the slab can.
TS_ENGINE_TEST(Misuse, OfAPlaceThatWasNeverHandedOut) {
  ThreadHeap& heap = make_heap();
  const unsigned c = class_for(64);
  void* const p = allocate(heap, 64);
  std::byte* const fresh = bytes_at(p) + 4096;
  ASSERT_GE(engine::place_of(fresh, engine::size_classes[c]).number, engine::slab_of(p)->carved);
  release(heap, fresh);
  expect_no_misuse();
  flush_bin_of(heap, c);
  expect_misuse(Misuse::no_beginning, FoundBy::a_later_call, fresh);
  // At once, if the bin does not take it.
  {
    const engine::HeapHold hold{heap};
    engine::set_capacity(heap, c, 0);
  }
  release(heap, fresh + 64);
  expect_misuse(Misuse::no_beginning, FoundBy::free, fresh + 64);
  expect_sound();
  EXPECT_NE(allocate(heap, 64), fresh);
}

// At every place inside a block where a small block may have been.
std::size_t marks_in(const void* begin, std::size_t bytes) {
  std::size_t marks = 0;
  for (std::size_t at = 0; at + sizeof(Block) <= bytes; at += 16)
    marks += engine::has_key(static_cast<const std::byte*>(begin) + at) ? 1 : 0;
  return marks;
}

// Otherwise a copy of it at the start of a small block would look like a freed block.
TS_ENGINE_TEST(Misuse, LargeBlocksHaveNoMarksOfSmallOnesThatWereThere) {
  ThreadHeap& heap = make_heap();
  ThreadHeap& other = make_heap();
  const As as{heap};
  engine::Engine engine;
  for (const std::size_t small : {16U, 48U, 848U, 32768U}) {
    const std::size_t count = 2'000'000 / small;
    std::vector<void*> were_small;
    for (std::size_t i = 0; i < count; ++i) were_small.push_back(engine.allocate(small, 16));
    for (std::size_t i = 0; i < count; ++i) release(i % 5 == 0 ? other : heap, were_small[i]);
    flush_heap(other);
    flush_heap(heap);
    std::size_t again = 0;
    std::vector<void*> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(engine.allocate(200'000, 16));
    for (void* const p : blocks) {
      again += std::ranges::count_if(
          were_small, [p](const void* was) { return address_of(was) - address_of(p) < 200'000; });
      EXPECT_EQ(marks_in(p, 200'000), 0U) << small;
    }
    EXPECT_GT(again, 0U) << small;
    for (void* const p : blocks) release(p);
  }
}

TS_HEAP_TEST(Misuse, AWriteToAFreeBlockIsReportedByTheMallocThatComesToIt) {
  constexpr unsigned c = class_for(64);
  auto* const written = static_cast<Block*>(engine.allocate(64, 16));
  auto* const in_use = static_cast<Block*>(engine.allocate(64, 16));
  auto* const linked = static_cast<Block*>(engine.allocate(64, 16));
  testing::release(written);
  written->key = 77;
  EXPECT_NE(engine.allocate(64, 16), written);
  expect_misuse(Misuse::damaged_list, FoundBy::a_later_call, written);
  EXPECT_EQ(written->key, 77U);
  expect_sound("after a write to the second word");
  // A link to a block in use, which stays intact.
  in_use->key = 77;
  testing::release(linked);
  linked->next = in_use;
  EXPECT_EQ(engine.allocate(64, 16), linked);
  EXPECT_NE(engine.allocate(64, 16), in_use);
  expect_misuse(Misuse::damaged_list, FoundBy::a_later_call, in_use);
  EXPECT_EQ(in_use->key, 77U);
  expect_sound("after a write to a link");
  // A slab's free block without a link is still handed out, whatever was written to it.
  for (const std::uint16_t bypassed_refills : {std::uint16_t{0}, std::uint16_t{2}}) {
    flush_bin_of(heap, c);
    const engine::Span& slab = *heap.partial[c];
    std::uint32_t number = 0;
    while (!engine::is_free(engine::first_page_of(&slab), number)) ++number;
    auto* const first = reinterpret_cast<Block*>(engine::block_at(slab, number));
    first->next = in_use;
    first->key = 77;
    heap.bypassed_refills = bypassed_refills;
    EXPECT_EQ(engine.allocate(64, 16), first);
    expect_no_misuse();
    testing::release(first);
    heap.bypassed_refills = 0;
    expect_sound("after a write to a slab's block");
  }
  // In the common heap, left by an ended thread.
  const As ended{engine::ended_heap};
  auto* const next = static_cast<Block*>(engine.allocate(64, 16)) + 64 / sizeof(Block);
  next->key = 77;
  EXPECT_NE(engine.allocate(64, 16), next);
  expect_misuse(Misuse::damaged_list, FoundBy::a_later_call, next);
  EXPECT_EQ(next->key, 77U);
}

TS_HEAP_TEST(Misuse, OfALargeBlock) {
  void* const p = engine.allocate(200'000, 16);
  release(bytes_at(p) + 16);
  expect_misuse(Misuse::no_beginning, FoundBy::free, bytes_at(p) + 16);
  release(bytes_at(p) + page_bytes);
  expect_misuse(Misuse::no_beginning, FoundBy::free, bytes_at(p) + page_bytes);
  EXPECT_FALSE(engine::is_in_use(bytes_at(p) + 16));
  EXPECT_TRUE(engine::is_in_use(p));
  release(p);
  release(p);
  expect_misuse(Misuse::double_free, FoundBy::free, p);
  // In a span cache.
  void* const cached = engine.allocate(3 * page_bytes, 16);
  release(cached);
  release(cached);
  expect_misuse(Misuse::double_free, FoundBy::free, cached);
}

TS_HEAP_TEST(Misuse, OfForeignMemory) {
  engine.allocate(64, 16);
  int on_stack = 0;
  errno = 7;
  release(&on_stack);
  EXPECT_EQ(errno, 7);
  expect_misuse(Misuse::foreign_pointer, FoundBy::free, &on_stack);
  EXPECT_EQ(engine.usable_size(&on_stack), 0U);
  expect_misuse(Misuse::foreign_pointer, FoundBy::usable_size, &on_stack);
  fake_os::answers.has_other_allocators = false;
  release(&on_stack);
  expect_misuse(Misuse::no_pointer, FoundBy::free, &on_stack);
  // A program with two allocators may free many: this many are checked.
  for (int i = 0; i < 2000; ++i) release(&on_stack);
  EXPECT_EQ(fake_os::take_misuses().back().kind, Misuse::foreign_pointer);
  release(nullptr);
  expect_no_misuse();
  EXPECT_EQ(engine.move(&on_stack, 100), nullptr);
}

// ---- sampled blocks ----

// Allocates until a block is sampled.
void* sample(std::size_t bytes) {
  engine::Engine engine;
  for (int i = 0; i < 100'000; ++i) {
    void* const p = engine.allocate(bytes, 16);
    if (engine::entry_of(p) == 0) return p;
  }
  return nullptr;
}

TS_HEAP_TEST(SampledGuard, IsOffUnlessItIsAskedFor) {
  for (int i = 0; i < 1000; ++i)
    ASSERT_NE(engine::entry_of(engine::Engine{}.allocate(100, 16)), 0U);
  EXPECT_EQ(engine::hooks::allocate_guarded(1), nullptr);
  int on_stack = 0;
  EXPECT_FALSE(engine::hooks::release_foreign(&on_stack));
  EXPECT_EQ(engine::hooks::foreign_bytes(&on_stack), 0U);
}

TS_HEAP_TEST(SampledGuard, ABlockEndsWhereItsPageEnds) {
  current_options.guard_sample = 10;
  auto* const p = bytes_at(sample(100));
  ASSERT_NE(p, nullptr);
  const std::size_t bytes = engine.bytes_of(p);
  EXPECT_EQ(bytes, engine::size_classes[class_for(100)].block_bytes);
  EXPECT_EQ(address_of(p + bytes) % os::page_bytes(), 0U);
  std::memset(p, 1, bytes);
  EXPECT_TRUE(engine.is_block(p, FoundBy::realloc));
  EXPECT_EQ(engine.usable_size(p), bytes);
  EXPECT_EQ(engine.move(p, bytes), p) << "where it is";
  EXPECT_EQ(engine.move(p, bytes + 1), nullptr);
  EXPECT_FALSE(engine.resize(p, bytes));
  BlockView block;
  MapExtent pages;
  for (const std::size_t inside : {std::size_t{0}, std::size_t{1}, bytes - 1}) {
    EXPECT_TRUE(engine.find_block(p + inside, block, pages));
    EXPECT_EQ(block.payload, p);
    EXPECT_EQ(block.bytes, bytes);
    EXPECT_EQ(engine.owns(p + inside), inside == 0);
  }
  EXPECT_FALSE(engine.find_block(p - 1, block, pages));
  EXPECT_FALSE(engine.find_block(p + bytes, block, pages));
  fake_os::take_events();
  release(p);
  const std::vector<fake_os::Event> events = fake_os::take_events();
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].call, fake_os::Call::protect);
  EXPECT_EQ(events[0].begin, p + bytes - os::page_bytes());
  EXPECT_EQ(engine::hooks::foreign_bytes(p), 0U);
}

TS_HEAP_TEST(SampledGuard, MisuseIsReportedWithBothCallStacks) {
  current_options.guard_sample = 10;
  auto* const p = bytes_at(sample(100));
  ASSERT_NE(p, nullptr);
  release(p + 8);
  expect_misuse(Misuse::no_beginning, FoundBy::free, p + 8);
  ::testing::internal::CaptureStderr();
  fake_os::access_badly(p + engine.bytes_of(p) + 5);
  std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("access outside of a block in use"), std::string::npos) << said;
  EXPECT_NE(said.find("allocated here"), std::string::npos);
  EXPECT_EQ(said.find("freed here"), std::string::npos);
  release(p);
  ::testing::internal::CaptureStderr();
  fake_os::access_badly(p);
  int on_stack = 0;
  fake_os::access_badly(&on_stack);  // not tsmalloc's concern
  said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("use after free"), std::string::npos) << said;
  EXPECT_NE(said.find("allocated here"), std::string::npos);
  EXPECT_NE(said.find("freed here"), std::string::npos);
  ::testing::internal::CaptureStderr();
  release(p);
  said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("freed here"), std::string::npos) << said;
  expect_misuse(Misuse::double_free, FoundBy::free, p);
}

TS_HEAP_TEST(SampledGuard, AFreedPageRestsUntilAllOthersWereUsed) {
  current_options.guard_sample = 1;
  void* const first = sample(4000);
  ASSERT_NE(first, nullptr);
  release(first);
  std::vector<void*> samples;
  for (int i = 0; i < 127; ++i) {
    samples.push_back(sample(4000));
    ASSERT_NE(samples.back(), first) << i;
  }
  samples.push_back(sample(4000));
  EXPECT_EQ(samples.back(), first);
  // All are in use: none is sampled.
  for (int i = 0; i < 1000; ++i) ASSERT_NE(engine::entry_of(engine.allocate(4000, 16)), 0U);
  release(samples[77]);
  EXPECT_EQ(sample(4000), samples[77]);
}

TS_HEAP_TEST(SampledGuard, AChangedOptionCountsAtOnce) {
  const unsigned c = engine::class_for(100);
  current_options.guard_sample = 1'000'000'000;
  void* const first = engine::hooks::allocate_guarded(c);
  ASSERT_NE(first, nullptr);
  engine::hooks::allocate_guarded(c);  // the first distance is the smallest
  EXPECT_EQ(engine::hooks::allocate_guarded(c), nullptr) << "the next one is far away";
  current_options.guard_sample = 1;
  EXPECT_NE(engine::hooks::allocate_guarded(c), nullptr);
  current_options.guard_sample = 0;
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(engine::hooks::allocate_guarded(c), nullptr);
  EXPECT_TRUE(engine::Engine::is_block(first, FoundBy::realloc));
  release(first);
  EXPECT_EQ(engine::hooks::foreign_bytes(first), 0U);
}

TS_HEAP_TEST(SampledGuard, LargerBlocksThanAPageAreNotSampled) {
  current_options.guard_sample = 1;
  const std::size_t bytes = os::page_bytes() + 1;  // a large block, or one of a slab
  for (int i = 0; i < 100; ++i)
    ASSERT_NE(engine::entry_of(engine::Engine{}.allocate(bytes, 16)), 0U);
}

TS_HEAP_TEST(SampledGuard, WithoutMemoryABlockIsNotSampled) {
  current_options.guard_sample = 1;
  fake_os::refuse(fake_os::Call::reserve);
  for (int i = 0; i < 1000; ++i) ASSERT_NE(engine::entry_of(engine.allocate(100, 16)), 0U);
  fake_os::refuse_if([](const fake_os::Request& r) {
    return r.call == fake_os::Call::commit && r.bytes == os::page_bytes();
  });
  for (int i = 0; i < 1000; ++i) ASSERT_NE(engine::entry_of(engine.allocate(100, 16)), 0U);
  fake_os::refuse_nothing();
  void* const p = sample(100);
  EXPECT_NE(p, nullptr);
  // If a page cannot be protected, fewer errors are detected.
  fake_os::refuse(fake_os::Call::protect);
  release(p);
  EXPECT_EQ(engine::hooks::foreign_bytes(p), 0U);
}

TS_HEAP_TEST(SampledGuard, OneThreadTakesASampleAtATime) {
  current_options.guard_sample = 1;
  const unsigned c = engine::class_for(100);
  void* within = nullptr;
  bool was_asked = false;
  fake_os::refuse_if([&](const fake_os::Request& r) {
    if (r.call == fake_os::Call::reserve && !was_asked) {
      was_asked = true;
      for (int i = 0; i < 100 && within == nullptr; ++i)
        within = engine::hooks::allocate_guarded(c);
    }
    return false;
  });
  void* p = nullptr;
  for (int i = 0; i < 1000 && p == nullptr; ++i) p = engine::hooks::allocate_guarded(c);
  EXPECT_TRUE(was_asked);
  EXPECT_NE(p, nullptr);
  EXPECT_EQ(within, nullptr);
  // The child of a fork no longer has that thread.
  engine::forget_samples_in_progress();
  EXPECT_NE(sample(100), nullptr);
}

}  // namespace
}  // namespace ts::testing
