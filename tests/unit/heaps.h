// What tests of the 18 heaps share: their list and names, a heap that cleans up after itself, a
// buffer for it to live in, and the walk as a vector. No test logic.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "classic/variants.h"

// How many times less work a test does in this build; 1 where nothing slows it down (CMake sets
// it).
#ifndef TS_TEST_SLOWNESS
#define TS_TEST_SLOWNESS 1
#endif

namespace ts::testing {

using namespace ts::classic;

inline constexpr unsigned slowness = TS_TEST_SLOWNESS;

template <template <class> class Strategy>
using Fits = ::testing::Types<Strategy<FirstFit>, Strategy<BestFit>, Strategy<WorstFit>>;

using AllHeaps =
    ::testing::Types<Lock<FirstFit>, Lock<BestFit>, Lock<WorstFit>, ReadWrite<FirstFit>,
                     ReadWrite<BestFit>, ReadWrite<WorstFit>, PerThread<FirstFit>,
                     PerThread<BestFit>, PerThread<WorstFit>, Arenas<FirstFit>, Arenas<BestFit>,
                     Arenas<WorstFit>, Cached<FirstFit>, Cached<BestFit>, Cached<WorstFit>,
                     LockFree<FirstFit>, LockFree<BestFit>, LockFree<WorstFit>>;

template <class Fit>
constexpr const char* fit_name() {
  if constexpr (std::is_same_v<Fit, FirstFit>) return "first";
  if constexpr (std::is_same_v<Fit, BestFit>) return "best";
  return "worst";
}

// Which strategy and fit a heap type is made of.
template <class Heap>
struct Traits;
#define TS_TRAITS(Strategy, text)                                               \
  template <class F>                                                            \
  struct Traits<Strategy<F>> {                                                  \
    using Fit = F;                                                              \
    static std::string name() { return std::string{text "_"} + fit_name<F>(); } \
  }
TS_TRAITS(Lock, "lock");
TS_TRAITS(ReadWrite, "rwlock");
TS_TRAITS(PerThread, "nolock");
TS_TRAITS(Arenas, "arenas");
TS_TRAITS(Cached, "cached");
TS_TRAITS(LockFree, "lockfree");
#undef TS_TRAITS

template <class Heap>
inline constexpr bool is_cached = false;
template <class Fit>
inline constexpr bool is_cached<Cached<Fit>> = true;
template <class Heap>
inline constexpr bool is_lock_free = false;
template <class Fit>
inline constexpr bool is_lock_free<LockFree<Fit>> = true;
template <class Heap>
inline constexpr bool is_per_thread = false;
template <class Fit>
inline constexpr bool is_per_thread<PerThread<Fit>> = true;
template <class Heap>
inline constexpr bool is_arenas = false;
template <class Fit>
inline constexpr bool is_arenas<Arenas<Fit>> = true;

// Names typed tests by their heap: SuiteName/lock_best.Test.
struct HeapNames {
  template <class Heap>
  static std::string GetName(int) {
    return Traits<Heap>::name();
  }
};

// A heap that gives everything back at the end of its scope.
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

// Memory for a heap of its own, at an address of a given remainder modulo 16.
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

// All blocks of a heap, in the order of the walk.
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
