// Shared by the tests of the public interface: a heap that is destroyed with its scope, and the
// heap's contents as values.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "tsmalloc/classic.h"

// The factor by which tests do less work in this build; 1 if nothing slows it down (set by CMake).
#ifndef TS_TEST_SLOWNESS
#define TS_TEST_SLOWNESS 1
#endif

namespace ts::testing::api {

inline constexpr unsigned slowness = TS_TEST_SLOWNESS;
inline constexpr std::size_t tag_bytes = 8;
inline constexpr std::size_t chunk_overhead_bytes = 32;
inline constexpr std::size_t buffer_bytes = std::size_t{4} << 20;

// A heap, with its buffer if it has one, destroyed at the end of the scope.
class Heap {
 public:
  explicit Heap(ts_heap_options options) : Heap{options, buffer_bytes} {}
  Heap(ts_heap_options options, std::size_t bytes) {
    if (options.source == TS_SOURCE_BUFFER) {
      buffer_.resize(bytes);
      options.buffer = buffer_.data();
      options.buffer_size = bytes;
    }
    heap_ = ts_heap_create(&options);
  }
  ~Heap() { ts_heap_destroy(heap_); }
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  operator ts_heap*() const { return heap_; }

 private:
  std::vector<unsigned char> buffer_;
  ts_heap* heap_ = nullptr;
};

inline ts_heap_options options_of(ts_strategy strategy, ts_fit fit, ts_source source) {
  ts_heap_options options{};
  options.strategy = strategy;
  options.fit = fit;
  options.source = source;
  return options;
}

inline ts_heap_measures measures_of(ts_heap* heap) {
  ts_heap_measures measures;
  std::memset(&measures, 0xee, sizeof measures);
  ts_heap_measure(heap, &measures);
  return measures;
}

inline std::vector<ts_block> blocks_of(ts_heap* heap) {
  std::vector<ts_block> blocks;
  const auto visit = [](const ts_block* block, void* argument) {
    static_cast<std::vector<ts_block>*>(argument)->push_back(*block);
    return 0;
  };
  EXPECT_EQ(ts_heap_walk(heap, visit, &blocks), 0);
  return blocks;
}

inline std::size_t used_bytes(const std::vector<ts_block>& blocks) {
  std::size_t bytes = 0;
  for (const ts_block& block : blocks) {
    if (block.state == TS_BLOCK_USED) bytes += block.size + tag_bytes;
  }
  return bytes;
}

}  // namespace ts::testing::api
