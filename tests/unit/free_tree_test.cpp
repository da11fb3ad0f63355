// The tree of free blocks in each of its orders, against std::set; and the fits, against a scan.
#include "classic/free_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "unit/heaps.h"

namespace ts::testing {
namespace {

// Free blocks of chosen sizes at chosen addresses, with nothing else in between.
class Blocks {
 public:
  explicit Blocks(std::size_t bytes) : memory_{bytes} {}
  Block* make(std::size_t offset, std::size_t block_bytes) {
    Block* const block = Block::at(memory_.begin() + offset + tag_bytes);
    block->set_tag(Tag{block_bytes, 0, 0});
    return block;
  }

 private:
  Buffer memory_;
};

template <class Tree>
unsigned depth(const Block* t) {
  if (t == nullptr) return 0;
  return 1 + std::max(depth<Tree>(Tree::left(t)), depth<Tree>(Tree::right(t)));
}

// The preference of the fit, implemented independently.
template <class Fit>
bool is_better(const Block* a, const Block* b) {
  if constexpr (std::is_same_v<Fit, BestFit>) {
    if (a->block_bytes() != b->block_bytes()) return a->block_bytes() < b->block_bytes();
  }
  if constexpr (std::is_same_v<Fit, WorstFit>) {
    if (a->block_bytes() != b->block_bytes()) return a->block_bytes() > b->block_bytes();
  }
  return a < b;
}

template <class Fit>
struct Less {
  bool operator()(const Block* a, const Block* b) const { return is_better<Fit>(a, b); }
};

struct FitNames {
  template <class Fit>
  static std::string GetName(int) {
    if (std::is_same_v<Fit, FirstFit>) return "first";
    return std::is_same_v<Fit, BestFit> ? "best" : "worst";
  }
};

template <class Fit>
class FreeTreeOf : public ::testing::Test {};
using AllFits = ::testing::Types<FirstFit, BestFit, WorstFit>;
TYPED_TEST_SUITE(FreeTreeOf, AllFits, FitNames);

// The search skips what `accept` rejects, and offers acceptable blocks in policy order, each once.
TYPED_TEST(FreeTreeOf, FindsTheNextOneWhenTheFirstIsTurnedDown) {
  Blocks memory{400 * 4096 + 64};
  std::mt19937_64 random{2};
  typename TypeParam::Tree tree;
  std::vector<Block*> expected;
  for (std::size_t place = 0; place < 400; ++place) {
    expected.push_back(memory.make(place * 4096, 32 + 16 * (random() % 40)));
    tree.insert(expected.back());
  }
  std::sort(expected.begin(), expected.end(), Less<TypeParam>{});
  for (const std::size_t wanted : {std::size_t{32}, std::size_t{300}, std::size_t{656}}) {
    std::vector<Block*> large_enough;
    std::copy_if(expected.begin(), expected.end(), std::back_inserter(large_enough),
                 [&](const Block* b) { return b->block_bytes() >= wanted; });
    std::vector<Block*> offered;
    const auto turn_all_down = [&](Block* block) {
      offered.push_back(block);
      return false;
    };
    EXPECT_EQ(TypeParam::find(tree, wanted, turn_all_down), nullptr);
    EXPECT_EQ(offered, large_enough);
    for (std::size_t i = 0; i < large_enough.size(); i += 17) {
      const auto accept_one = [&](const Block* block) { return block == large_enough[i]; };
      EXPECT_EQ(TypeParam::find(tree, wanted, accept_one), large_enough[i]);
    }
  }
}

// Addresses in order, with large strides, or in bit-reversed order do not unbalance the tree.
TYPED_TEST(FreeTreeOf, StaysShallowForRegularAddresses) {
  using Tree = typename TypeParam::Tree;
  constexpr unsigned bits = 15;
  constexpr std::size_t blocks = std::size_t{1} << bits;
  const double limit = 4 * std::log2(static_cast<double>(blocks));  // expected: about 1.4 to 2
  for (const std::size_t stride : {std::size_t{64}, std::size_t{96}, std::size_t{4096}}) {
    Blocks memory{blocks * stride + 64};
    for (const bool reversed : {false, true}) {
      Tree tree;
      for (std::size_t i = 0; i < blocks; ++i) {
        std::size_t place = i;
        if (reversed) {
          place = 0;
          for (unsigned bit = 0; bit < bits; ++bit) place |= (i >> bit & 1) << (bits - 1 - bit);
        }
        tree.insert(memory.make(place * stride, 48));
      }
      ASSERT_TRUE(tree.is_valid());
      EXPECT_LT(depth<Tree>(tree.root()), limit) << "stride " << stride << ", " << reversed;
    }
  }
}

// ---- is_valid ----

// The largest size recorded in a node does not match its subtree.
TEST(FreeTreeIsValid, SeesAWrongLargestSize) {
  Blocks memory{64 * 4096 + 64};
  FirstFit::Tree tree;
  for (std::size_t place = 0; place < 64; ++place) tree.insert(memory.make(place * 4096, 64));
  ASSERT_TRUE(tree.is_valid());
  tree.root()->link_word(1) ^= address_limit;  // the lowest bit of the size (free_tree.h)
  EXPECT_FALSE(tree.is_valid());
}

}  // namespace
}  // namespace ts::testing
