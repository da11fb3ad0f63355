// Where memory comes from, call by call, as far as the oracle of tests/property does not predict
// it: statistics, refusals, what destroyed heaps left behind, and what another library sees.
#include "classic/source.h"

#include <gtest/gtest.h>

#include <cstring>

#include "classic/leaving_memory.h"
#include "unit/clean_system.h"
#include "unit/heaps.h"

namespace ts::testing {
namespace {

using Growth = Source::Growth;

struct SourceTest : ::testing::Test {
  void SetUp() override { clean_system(); }

  static SourceConfig config(SourceKind kind, std::size_t growth_bytes = 0) {
    return growing_by(kind, growth_bytes).source;
  }
  static std::size_t bytes_of(const Growth& growth) {
    return static_cast<std::size_t>(growth.end - growth.begin);
  }
  // What a heap does with a new chunk: one block plus the fence.
  static void tag(const Growth& growth) {
    growth.chunk->first_block()->set_tag(
        Tag{growth.chunk->bytes() - Chunk::overhead_bytes, 0, Tag::used_flag | Tag::first_flag});
    growth.chunk->fence()->set_tag(Tag{0, 0, Tag::used_flag});
  }
  static HeapMeasures measures_of(Source& source) {
    HeapMeasures measures;
    source.measure(measures);
    return measures;
  }
};

// ---- The break ----

// Memory in the middle of the data segment when its heap is destroyed is used by the next source.
TEST_F(SourceTest, ReusesWhatADestroyedHeapLeftBehind) {
  auto old = std::make_unique<Source>(config(SourceKind::sbrk));
  const Growth left = old->grow(100'000, 100'000, nullptr);
  tag(left);
  std::byte* const begin = left.begin;
  const std::size_t bytes = left.chunk->bytes();
  ASSERT_TRUE(fake_os::move_break(64));
  old->release_all();
  EXPECT_GT(fake_os::discarded_bytes(), 80'000U);  // it costs no memory meanwhile
  EXPECT_EQ(measures_of(*old).segment_bytes, bytes);

  Source next{config(SourceKind::sbrk)};
  fake_os::take_events();
  const Growth too_large = next.grow(200'000, 200'000, nullptr);
  EXPECT_NE(too_large.begin, begin);
  EXPECT_EQ(fake_os::take_events().size(), 1U);
  const Growth reused = next.grow(50'000, 50'000, nullptr);
  EXPECT_EQ(reused.begin, begin);
  EXPECT_EQ(reused.chunk->bytes(), bytes);
  EXPECT_TRUE(fake_os::take_events().empty());
  const Growth only_once = next.grow(50'000, 50'000, nullptr);
  EXPECT_NE(only_once.begin, begin);
  EXPECT_EQ(measures_of(next).sbrk_calls, 2U);
  next.release_all();
}

// ---- Mappings ----

TEST_F(SourceTest, KeepsWhatTheSystemDoesNotTakeBack) {
  Source source{config(SourceKind::mmap)};
  const Growth growth = source.grow(100'000, 100'000, nullptr);
  std::byte* const begin = growth.begin;
  std::byte* const end = growth.end;
  const auto bytes = static_cast<std::size_t>(end - begin);
  fake_os::refuse(fake_os::Call::unmap);
  EXPECT_TRUE(source.shrink(growth.chunk, 8192));
  EXPECT_TRUE(source.release(growth.chunk));
  EXPECT_TRUE(send_leaving());
  fake_os::refuse_nothing();
  EXPECT_EQ(fake_os::discarded_bytes(), bytes);  // it costs no memory meanwhile
  EXPECT_EQ(measures_of(source).segment_bytes, 0U);
  EXPECT_EQ(measures_of(source).chunks, 0U);
  // The next growth uses it.
  fake_os::take_events();
  EXPECT_EQ(source.grow(50'000, 50'000, nullptr).begin, begin);
  EXPECT_EQ(source.grow(4096, 4096, nullptr).begin, end - 8192);
  EXPECT_EQ(measures_of(source).segment_bytes, bytes);
  EXPECT_TRUE(fake_os::take_events().empty());
  source.release_all();
}

// ---- What another library sees (leaving_memory.h) ----

// Another library, called when memory is returned, uses the heap. Its memory does not share the
// last page, and what it returns goes afterwards. Memory below the moved break is left for the next
// growth.
TEST_F(SourceTest, SurvivesUseWhileItSends) {
  Source source{config(SourceKind::sbrk)};
  Source other{config(SourceKind::sbrk)};
  Source mapping{config(SourceKind::mmap)};
  const Growth growth = source.grow(50'000, 50'000, nullptr);
  const Growth mapped = mapping.grow(50'000, 50'000, nullptr);
  const std::size_t mapped_before = fake_os::mapped_bytes();
  Growth meanwhile{};
  fake_os::refuse_if([&](const fake_os::Request& request) {
    if (request.call != fake_os::Call::discard || meanwhile.chunk != nullptr) return false;
    meanwhile = other.grow(100, 100, nullptr);
    std::memset(meanwhile.begin + sizeof(Chunk), 1, bytes_of(meanwhile) - sizeof(Chunk));
    EXPECT_TRUE(mapping.release(mapped.chunk));
    EXPECT_FALSE(send_leaving());
    EXPECT_FALSE(other.release(meanwhile.chunk));  // the end is being sent
    return false;
  });
  EXPECT_TRUE(source.release(growth.chunk));
  EXPECT_TRUE(send_leaving());
  fake_os::refuse_nothing();
  ASSERT_NE(meanwhile.chunk, nullptr);
  EXPECT_EQ(address_of(meanwhile.begin) % os::page_bytes(), 0U);
  EXPECT_EQ(meanwhile.end[-1], std::byte{1});
  EXPECT_LT(fake_os::mapped_bytes(), mapped_before);
  fake_os::take_events();
  EXPECT_EQ(source.grow(50'000, 50'000, nullptr).begin, growth.begin);
  EXPECT_TRUE(fake_os::take_events().empty());
  other.release_all();
  source.release_all();
}

}  // namespace
}  // namespace ts::testing
