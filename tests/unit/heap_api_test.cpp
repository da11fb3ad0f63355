// The public C interface: every kind of heap over every source, bad options and bad requests.
#include "unit/heap_api.h"

#include <cerrno>
#include <cstdint>
#include <string>
#include <tuple>

namespace {

using namespace ts::testing::api;

// ---- Every kind over every source ----

using Kind = std::tuple<int, int, int>;

class EveryHeap : public ::testing::TestWithParam<Kind> {
 protected:
  static ts_heap_options options() {
    const auto [strategy, fit, source] = GetParam();
    return options_of(static_cast<ts_strategy>(strategy), static_cast<ts_fit>(fit),
                      static_cast<ts_source>(source));
  }
};

std::string kind_name(const ::testing::TestParamInfo<Kind>& info) {
  constexpr const char* sources[] = {"mmap", "sbrk", "buffer"};
  const auto [strategy, fit, source] = info.param;
  return std::string{ts_strategy_name(static_cast<ts_strategy>(strategy))} + "_" +
         ts_fit_name(static_cast<ts_fit>(fit)) + "_" + sources[source];
}

INSTANTIATE_TEST_SUITE_P(HeapApi, EveryHeap,
                         ::testing::Combine(::testing::Range(0, int{TS_STRATEGY_COUNT}),
                                            ::testing::Range(0, int{TS_FIT_COUNT}),
                                            ::testing::Range(0, int{TS_SOURCE_COUNT})),
                         kind_name);

TEST_P(EveryHeap, ServesEveryFunction) {
  const Heap heap{options()};
  auto* const a = static_cast<unsigned char*>(ts_heap_malloc(heap, 100));
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % 16, 0U);
  EXPECT_GE(ts_heap_usable_size(heap, a), 100U);
  std::memset(a, 0xab, ts_heap_usable_size(heap, a));

  for (const std::size_t alignment : {1U, 8U, 16U, 64U, 4096U, 1U << 20}) {
    void* const aligned = ts_heap_aligned_alloc(heap, alignment, 30);
    ASSERT_NE(aligned, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % alignment, 0U);
    ts_heap_free(heap, aligned);
  }

  // Reused memory is zeroed.
  void* const dirty = ts_heap_malloc(heap, 5000);
  std::memset(dirty, 0xff, 5000);
  ts_heap_free(heap, dirty);
  auto* const zeroed = static_cast<unsigned char*>(ts_heap_calloc(heap, 50, 100));
  ASSERT_NE(zeroed, nullptr);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(zeroed[i], 0);

  auto* const moved = static_cast<unsigned char*>(ts_heap_realloc(heap, a, 20'000));
  ASSERT_NE(moved, nullptr);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(moved[i], 0xab);
  auto* const shrunk = static_cast<unsigned char*>(ts_heap_realloc(heap, moved, 10));
  ASSERT_NE(shrunk, nullptr);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(shrunk[i], 0xab);
  void* const still_a_block = ts_heap_realloc(heap, shrunk, 0);
  ASSERT_NE(still_a_block, nullptr);
  ts_heap_free(heap, still_a_block);
  void* const fresh = ts_heap_realloc(heap, nullptr, 40);
  ASSERT_NE(fresh, nullptr);
  ts_heap_free(heap, fresh);
  ts_heap_free(heap, zeroed);
  ts_heap_free(heap, nullptr);
  EXPECT_EQ(ts_heap_usable_size(heap, nullptr), 0U);

  ts_heap_trim(heap, 0);
  EXPECT_EQ(used_bytes(blocks_of(heap)), 0U);
  EXPECT_EQ(ts_heap_check(heap), 1);
}

TEST_P(EveryHeap, SetsErrno) {
  const Heap heap{options()};
  void* const block = ts_heap_malloc(heap, 100);
  std::memset(block, 1, 100);
  const auto expect = [](void* result, int error) {
    EXPECT_EQ(result, nullptr);
    EXPECT_EQ(errno, error);
    errno = 0;
  };
  errno = 0;
  expect(ts_heap_malloc(heap, SIZE_MAX), ENOMEM);
  expect(ts_heap_malloc(heap, PTRDIFF_MAX), ENOMEM);
  expect(ts_heap_calloc(heap, SIZE_MAX / 2, 3), ENOMEM);
  expect(ts_heap_aligned_alloc(heap, 0, 10), EINVAL);
  expect(ts_heap_aligned_alloc(heap, 24, 10), EINVAL);
  expect(ts_heap_aligned_alloc(heap, 64, SIZE_MAX - 32), ENOMEM);
  expect(ts_heap_realloc(heap, block, SIZE_MAX), ENOMEM);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(static_cast<unsigned char*>(block)[i], 1);
  errno = 42;
  ts_heap_free(heap, block);
  EXPECT_EQ(errno, 42);
}

// As tests/property knows them, through the public interface.
TEST_P(EveryHeap, WalkAndMeasuresAgree) {
  ts_heap_options wanted = options();
  wanted.growth_size = wanted.source == TS_SOURCE_BUFFER ? 0 : 16384;
  const Heap heap{wanted};
  std::vector<void*> live;
  for (std::size_t i = 0; i < 300; ++i) live.push_back(ts_heap_malloc(heap, i * 29 % 2500));
  for (std::size_t i = 0; i < live.size(); i += 2) ts_heap_free(heap, live[i]);
  const std::vector<ts_block> blocks = blocks_of(heap);
  const ts_heap_measures measures = measures_of(heap);
  std::size_t free_bytes = 0;
  std::size_t cached_bytes = 0;
  std::size_t free_blocks = 0;
  for (const ts_block& block : blocks) {
    if (block.state == TS_BLOCK_USED) continue;
    ++free_blocks;
    free_bytes += block.size + tag_bytes;
    if (block.state == TS_BLOCK_CACHED) cached_bytes += block.size + tag_bytes;
  }
  EXPECT_EQ(used_bytes(blocks) + free_bytes + measures.chunks * chunk_overhead_bytes,
            measures.segment_size);
  EXPECT_EQ(free_bytes, measures.free_size);
  EXPECT_EQ(free_blocks, measures.free_blocks);
  EXPECT_EQ(cached_bytes, measures.cached_size);
  EXPECT_GE(measures.growth_calls, 1U);
  // (A heap over sbrk may reuse what an earlier one left behind, without any call.)
  EXPECT_TRUE(wanted.source == TS_SOURCE_SBRK || measures.sbrk_calls == 0);
  EXPECT_EQ(measures.subheaps, 1U);
  EXPECT_EQ(cached_bytes != 0, wanted.strategy == TS_STRATEGY_CACHED);

  int visited = 0;
  const auto stop = [](const ts_block*, void* count) {
    return ++*static_cast<int*>(count) == 5 ? 77 : 0;
  };
  EXPECT_EQ(ts_heap_walk(heap, stop, &visited), 77);
  EXPECT_EQ(visited, 5);
  EXPECT_NE(ts_heap_malloc(heap, 2000), nullptr) << "a lock was left locked";
}

extern "C" int header_is_c(void);

TEST(Header, WorksFromC) { EXPECT_EQ(header_is_c(), 1); }

// ---- Options ----

TEST(HeapOptions, ContradictionsAreRefused) {
  static unsigned char memory[4096];
  const ts_heap_options sound = options_of(TS_STRATEGY_LOCK, TS_FIT_BEST, TS_SOURCE_MMAP);
  const auto refused = [](const ts_heap_options* options) {
    errno = 0;
    ts_heap* const heap = ts_heap_create(options);
    const bool is = heap == nullptr && errno == EINVAL;
    ts_heap_destroy(heap);
    return is;
  };
  EXPECT_FALSE(refused(&sound));
  EXPECT_TRUE(refused(nullptr));

  ts_heap_options options = sound;
  options.strategy = TS_STRATEGY_COUNT;
  EXPECT_TRUE(refused(&options));
  options = sound;
  options.fit = TS_FIT_COUNT;
  EXPECT_TRUE(refused(&options));
  options = sound;
  options.source = TS_SOURCE_COUNT;
  EXPECT_TRUE(refused(&options));

  options = sound;
  options.source = TS_SOURCE_BUFFER;
  EXPECT_TRUE(refused(&options)) << "no buffer";
  options.buffer = memory;
  options.buffer_size = TS_BUFFER_MIN - 1;
  EXPECT_TRUE(refused(&options)) << "too small a buffer";
  options.buffer_size = TS_BUFFER_MIN;
  EXPECT_FALSE(refused(&options));
  options.source = TS_SOURCE_SBRK;
  EXPECT_TRUE(refused(&options)) << "a buffer that would not be used";

  for (int strategy = 0; strategy < TS_STRATEGY_COUNT; ++strategy) {
    options = sound;
    options.strategy = static_cast<ts_strategy>(strategy);
    options.thread_share = 65536;
    EXPECT_EQ(refused(&options), strategy != TS_STRATEGY_NOLOCK);
  }
  options = sound;
  options.growth_size = SIZE_MAX;
  EXPECT_TRUE(refused(&options));
}

TEST(HeapOptions, LeastBufferHoldsABlock) {
  for (int strategy = 0; strategy < TS_STRATEGY_COUNT; ++strategy) {
    for (std::size_t offset = 0; offset < 16; ++offset) {
      alignas(16) unsigned char memory[TS_BUFFER_MIN + 16];
      std::memset(memory, 0xcc, sizeof memory);
      ts_heap_options options =
          options_of(static_cast<ts_strategy>(strategy), TS_FIT_FIRST, TS_SOURCE_BUFFER);
      options.buffer = memory + offset;
      options.buffer_size = TS_BUFFER_MIN;
      ts_heap* const heap = ts_heap_create(&options);
      ASSERT_NE(heap, nullptr);
      void* const block = ts_heap_malloc(heap, 100);
      ASSERT_NE(block, nullptr);
      std::memset(block, 1, 100);
      errno = 0;
      EXPECT_EQ(ts_heap_malloc(heap, 1000), nullptr);
      EXPECT_EQ(errno, ENOMEM);
      for (std::size_t i = 0; i < offset; ++i) EXPECT_EQ(memory[i], 0xcc);
      for (std::size_t i = offset + TS_BUFFER_MIN; i < sizeof memory; ++i)
        EXPECT_EQ(memory[i], 0xcc);
      ts_heap_destroy(heap);
    }
  }
}

TEST(HeapOptions, GrowthAndThresholdAreHeeded) {
  ts_heap_options options = options_of(TS_STRATEGY_LOCK, TS_FIT_BEST, TS_SOURCE_MMAP);
  options.growth_size = std::size_t{1} << 20;
  options.trim_threshold = std::size_t{512} << 10;
  const Heap heap{options};
  void* const kept = ts_heap_malloc(heap, 100);
  EXPECT_EQ(measures_of(heap).segment_size, std::size_t{1} << 20);
  void* const block = ts_heap_malloc(heap, std::size_t{2} << 20);
  EXPECT_EQ(measures_of(heap).chunks, 2U);
  ts_heap_free(heap, block);
  EXPECT_EQ(measures_of(heap).chunks, 1U) << "above the threshold: given back at once";
  ts_heap_free(heap, kept);
  EXPECT_EQ(measures_of(heap).chunks, 0U);
}

TEST(HeapOptions, NamesAreThoseOfTheLibraries) {
  const char* const strategies[] = {"lock", "rwlock", "nolock", "arenas", "cached", "lockfree"};
  for (int i = 0; i < TS_STRATEGY_COUNT; ++i)
    EXPECT_STREQ(ts_strategy_name(static_cast<ts_strategy>(i)), strategies[i]);
  EXPECT_EQ(ts_strategy_name(TS_STRATEGY_COUNT), nullptr);
  const char* const fits[] = {"first", "best", "worst"};
  for (int i = 0; i < TS_FIT_COUNT; ++i) EXPECT_STREQ(ts_fit_name(static_cast<ts_fit>(i)), fits[i]);
  EXPECT_EQ(ts_fit_name(TS_FIT_COUNT), nullptr);
}

TEST(HeapApiDeathTest, DoubleFreeAborts) {
  for (int strategy = 0; strategy < TS_STRATEGY_COUNT; ++strategy) {
    const Heap heap{options_of(static_cast<ts_strategy>(strategy), TS_FIT_BEST, TS_SOURCE_MMAP)};
    for (const std::size_t bytes : {100U, 5000U}) {
      void* const block = ts_heap_malloc(heap, bytes);
      ts_heap_free(heap, block);
      EXPECT_EXIT(ts_heap_free(heap, block), ::testing::KilledBySignal(SIGABRT),
                  "^tsmalloc: free of a block that is not in use: 0x[0-9a-f]+\n$")
          << ts_strategy_name(static_cast<ts_strategy>(strategy)) << ", " << bytes;
    }
  }
}

}  // namespace
