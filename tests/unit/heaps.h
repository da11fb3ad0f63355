// Shared by the tests of the 18 heaps: their list and names, a heap that cleans up after itself, a
// buffer for it, and the walk as a vector.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "any_heap.h"
#include "classic/variants.h"

// The factor by which tests do less work in this build (set by CMake); 1 if nothing slows it down.
#ifndef TS_TEST_SLOWNESS
#define TS_TEST_SLOWNESS 1
#endif

namespace ts::testing {

using namespace ts::classic;

inline constexpr unsigned slowness = TS_TEST_SLOWNESS;
// More than the cached strategy caches, so that all strategies treat such blocks the same way.
inline constexpr std::size_t large = 2000;

// The number of the heap or arena that owns a block.
inline std::uint32_t owner_of(const void* payload) {
  return Block::of_payload(payload)->tag().owner();
}

// A test that runs once on each of the 18 heaps: TEST_P, with INSTANTIATE_TEST_SUITE_P(, Suite,
// all_heaps(), heap_name). Its name ends with the heap's, as in Suite.Test/lock_best.
class HeapSuite : public ::testing::TestWithParam<Cell> {
 protected:
  static std::unique_ptr<AnyHeap> make(const HeapConfig& config) { return GetParam().make(config); }
  static bool is(std::string_view strategy) { return GetParam().strategy == strategy; }
};

inline auto all_heaps() { return ::testing::ValuesIn(cells); }

// How gtest prints the heap on which a test failed.
inline void PrintTo(const Cell& cell, std::ostream* out) { *out << cell.name('-'); }

// The heaps for which `keep` holds.
template <class Predicate>
auto heaps_where(Predicate keep) {
  std::vector<Cell> kept;
  std::copy_if(cells.begin(), cells.end(), std::back_inserter(kept), keep);
  return ::testing::ValuesIn(kept);
}

inline std::string heap_name(const ::testing::TestParamInfo<Cell>& info) {
  return info.param.name('_');
}

// A heap that returns all its memory at the end of its scope.
template <class Heap>
class Scoped {
 public:
  explicit Scoped(const HeapConfig& config) : heap_{new Heap{config}} {}
  ~Scoped() { destroy(); }
  Scoped(const Scoped&) = delete;
  Scoped& operator=(const Scoped&) = delete;
  Heap& operator*() const { return *heap_; }
  Heap* operator->() const { return heap_.get(); }
  void destroy() {
    if (heap_ != nullptr) heap_->destroy();
    heap_.reset();
  }

 private:
  std::unique_ptr<Heap> heap_;
};

// Memory for a heap of its own, at an address with a given remainder modulo 16.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes, std::size_t offset = 0)
      : memory_{new(std::align_val_t{4096}) std::byte[bytes + offset]},
        begin_{memory_.get() + offset},
        bytes_{bytes} {}
  std::byte* begin() const { return begin_; }
  std::byte* end() const { return begin_ + bytes_; }
  std::size_t bytes() const { return bytes_; }
  HeapConfig config() const {
    return {.source = {.kind = SourceKind::buffer,
                       .growth_bytes = 0,
                       .buffer = begin_,
                       .buffer_bytes = bytes_},
            .trim_threshold_bytes = never_trim,
            .thread_share_bytes = 0};
  }

 private:
  struct Delete {
    void operator()(std::byte* p) const { operator delete[](p, std::align_val_t{4096}); }
  };
  std::unique_ptr<std::byte[], Delete> memory_;
  std::byte* begin_;
  std::size_t bytes_;
};

inline HeapConfig growing_by(SourceKind kind, std::size_t growth_bytes = 0,
                             std::size_t trim_threshold_bytes = never_trim) {
  return {
      .source = {.kind = kind, .growth_bytes = growth_bytes, .buffer = nullptr, .buffer_bytes = 0},
      .trim_threshold_bytes = trim_threshold_bytes,
      .thread_share_bytes = 0};
}

// All blocks of a heap, in walk order.
template <class Heap>
std::vector<BlockView> blocks_of(Heap& heap) {
  std::vector<BlockView> blocks;
  const bool finished = heap.walk(
      [](const BlockView& block, void* argument) {
        static_cast<std::vector<BlockView>*>(argument)->push_back(block);
        return true;
      },
      &blocks);
  EXPECT_TRUE(finished);
  return blocks;
}

// Sizes of the blocks in one state, headers included.
inline std::size_t bytes_in(const std::vector<BlockView>& blocks, BlockState state) {
  std::size_t sum = 0;
  for (const BlockView& block : blocks) sum += block.state == state ? block.bytes + tag_bytes : 0;
  return sum;
}

inline std::size_t count_in(const std::vector<BlockView>& blocks, BlockState state) {
  std::size_t count = 0;
  for (const BlockView& block : blocks) count += block.state == state ? 1 : 0;
  return count;
}

}  // namespace ts::testing
