// Random traces, and a model of each strategy to run them against.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "property/oracle_cache.h"
#include "unit/heaps.h"

namespace ts::testing {

using Random = std::mt19937_64;

// TS_TEST_SEED=n runs all traces with other seeds.
inline std::uint64_t base_seed() {
  const char* text = std::getenv("TS_TEST_SEED");
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

inline std::size_t below(Random& random, std::size_t limit) {
  return std::uniform_int_distribution<std::size_t>{0, limit - 1}(random);
}

// The requests of programs.
struct Sizes {
  const char* name;
  std::size_t (*draw)(Random&);
};

inline std::size_t log_uniform(Random& random, int max_bits) {
  const std::size_t bits = below(random, static_cast<std::size_t>(max_bits));
  return (std::size_t{1} << bits) + below(random, std::size_t{1} << bits);
}

inline constexpr std::array all_sizes{
    Sizes{"small", [](Random& random) { return below(random, 513); }},
    // Few sizes, so that many free blocks tie.
    Sizes{"ties", [](Random& random) { return 24 + 48 * below(random, 5); }},
    Sizes{"log_uniform", [](Random& random) { return log_uniform(random, 14); }},
    // Around the edges: multiples of the granule, and one less and more.
    Sizes{"edges", [](Random& random) { return 16 * below(random, 80) + 7 + below(random, 3); }},
    Sizes{"bimodal",
          [](Random& random) {
            return below(random, 10) != 0 ? below(random, 128) : 4000 + below(random, 20000);
          }},
};

// The model of a heap for one owner (a thread's heap, an arena, the only heap), or of one thread's
// cache before it.
class Model {
 public:
  Model(const Cell& cell, oracle::Heaps& heaps, unsigned owner) : heaps_{heaps}, owner_{owner} {
    if (cell.strategy == "cached")
      cache_.emplace(heaps, oracle::CacheRules{max_cached_block_bytes, batch_bytes,
                                               max_batch_blocks, max_cache_bytes});
  }
  std::optional<oracle::Address> allocate(std::size_t bytes, std::size_t alignment) {
    return cache_ ? cache_->allocate(bytes, alignment) : heaps_.allocate(owner_, bytes, alignment);
  }
  void release(oracle::Address payload) {
    cache_ ? cache_->release(payload) : heaps_.release(owner_, payload);
  }
  bool resize(oracle::Address payload, std::size_t bytes) {
    return cache_ ? cache_->resize(payload, bytes) : heaps_.resize(owner_, payload, bytes);
  }
  bool holds(oracle::Address payload) const { return cache_ && cache_->holds(payload); }
  void thread_ends() {
    if (cache_) cache_->empty();
  }

 private:
  oracle::Heaps& heaps_;
  unsigned owner_;
  std::optional<oracle::Cache> cache_;
};

inline oracle::Rules rules_for(const Cell& cell, const HeapConfig& config) {
  const SourceKind kind = config.source.kind;
  const bool lock_free = cell.strategy == "lockfree";
  return {.fit = cell.fit == "first"  ? oracle::Fit::first
                 : cell.fit == "best" ? oracle::Fit::best
                                      : oracle::Fit::worst,
          .break_first = kind != SourceKind::mmap,
          .may_map = kind != SourceKind::buffer,
          .grows_in_place = !lock_free,
          .makes_room = !lock_free,
          .trims_ends = !lock_free,
          .trims_mappings = !lock_free || kind == SourceKind::mmap,
          .growth_bytes = config.source.growth_bytes,
          .trim_threshold = config.trim_threshold_bytes};
}

struct Op {
  enum Kind { allocate, release, resize } kind;
  std::size_t bytes;
  std::size_t alignment;
  std::size_t victim;  // index of a live block
};

// Decides on the next operation: the number of live blocks swings between few and `max_live`, in
// phases, so that the heap both fills up and fragments.
class Script {
 public:
  Script(const Sizes& sizes, std::uint64_t seed, std::size_t max_live)
      : random_{seed}, sizes_{sizes}, max_live_{max_live} {}

  Op next(std::size_t live) {
    if (live >= goal_ && filling_) {
      filling_ = false;
      goal_ = below(random_, max_live_ / 4 + 1);
    } else if (live <= goal_ && !filling_) {
      filling_ = true;
      goal_ = max_live_ / 2 + below(random_, max_live_ / 2 + 1);
    }
    const std::size_t dice = below(random_, 100);
    if (live == 0 || dice < (filling_ ? 58U : 35U)) {
      const bool aligned = below(random_, 16) == 0;
      return {Op::allocate, sizes_.draw(random_),
              std::size_t{16} << (aligned ? 1 + below(random_, 8) : 0), 0};
    }
    // Mostly any block, sometimes one of the youngest or oldest.
    std::size_t victim = below(random_, live);
    if (below(random_, 4) == 0) victim = live - 1 - below(random_, std::min<std::size_t>(live, 3));
    if (dice >= 93) return {Op::resize, sizes_.draw(random_), 16, victim};
    return {Op::release, 0, 16, victim};
  }

  Random& random() { return random_; }

 private:
  Random random_;
  Sizes sizes_;
  std::size_t max_live_;
  std::size_t goal_ = 0;
  bool filling_ = false;
};

// A walk of the heap reports exactly the oracle's pieces.
template <class Holds>
void expect_same_blocks(AnyHeap& heap, const oracle::Heaps& expected, Holds is_cached_in_model) {
  std::map<oracle::Address, BlockView> seen;
  for (const BlockView& block : blocks_of(heap)) {
    ASSERT_TRUE(seen.emplace(address_of(block.payload), block).second) << "walked over twice";
  }
  std::size_t pieces = 0;
  std::size_t free_pieces = 0;
  std::size_t free_bytes = 0;
  std::size_t cached_bytes = 0;
  for (const oracle::Chunk& chunk : expected.chunks()) {
    for (const oracle::Piece& piece : chunk.pieces) {
      if (piece.bytes == 0) continue;  // the fence
      ++pieces;
      const auto found = seen.find(piece.payload());
      ASSERT_NE(found, seen.end()) << "a block is missing from the walk";
      const bool cached = !piece.free && is_cached_in_model(piece.payload());
      const BlockState state = piece.free ? BlockState::free
                               : cached   ? BlockState::cached
                                          : BlockState::used;
      ASSERT_EQ(found->second.bytes + tag_bytes, piece.bytes);
      ASSERT_EQ(found->second.state, state);
      ASSERT_EQ(found->second.owner, piece.owner);
      if (state != BlockState::used) ++free_pieces;
      if (state != BlockState::used) free_bytes += piece.bytes;
      if (cached) cached_bytes += piece.bytes;
    }
  }
  ASSERT_EQ(pieces, seen.size());
  const HeapMeasures measures = heap.measures();
  ASSERT_EQ(measures.free_blocks, free_pieces);
  ASSERT_EQ(measures.free_bytes, free_bytes);
  ASSERT_EQ(measures.cached_bytes, cached_bytes);
  ASSERT_EQ(measures.chunks, expected.chunks().size());
  std::size_t segment_bytes = 0;
  for (const oracle::Chunk& chunk : expected.chunks()) segment_bytes += chunk.end - chunk.begin;
  ASSERT_EQ(measures.segment_bytes, segment_bytes);
  ASSERT_TRUE(heap.is_valid());
}

}  // namespace ts::testing
