// The tree of free blocks in each of its orders, against std::set; and the fits, against a scan.
#include "classic/free_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <set>
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

template <class Tree>
void append_in_order(Block* t, std::vector<Block*>& out) {
  if (t == nullptr) return;
  append_in_order<Tree>(Tree::left(t), out);
  out.push_back(t);
  append_in_order<Tree>(Tree::right(t), out);
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

TYPED_TEST(FreeTreeOf, StartsEmpty) {
  typename TypeParam::Tree tree;
  EXPECT_EQ(tree.root(), nullptr);
  EXPECT_EQ(tree.blocks(), 0U);
  EXPECT_EQ(tree.bytes(), 0U);
  EXPECT_TRUE(tree.is_valid());
  EXPECT_EQ(TypeParam::find(tree, 32, AcceptAll{}), nullptr);
}

TYPED_TEST(FreeTreeOf, HoldsWhatASetHolds) {
  using Tree = typename TypeParam::Tree;
  constexpr std::size_t places = 2000;
  constexpr std::size_t stride = 4096;
  Blocks memory{places * stride + 64};
  std::mt19937_64 random{1};
  Tree tree;
  std::set<Block*, Less<TypeParam>> expected;
  std::vector<Block*> at_place(places);
  for (unsigned step = 0; step < 40'000 / slowness; ++step) {
    Block*& block = at_place[random() % places];
    if (block == nullptr) {
      const auto place = static_cast<std::size_t>(&block - at_place.data());
      // Few sizes, so that many tie.
      block = memory.make(place * stride, 32 + 16 * (random() % (step % 2 == 0 ? 4 : 200)));
      tree.insert(block);
      expected.insert(block);
    } else {
      tree.erase(block);
      expected.erase(block);
      block = nullptr;
    }
    ASSERT_EQ(tree.blocks(), expected.size());
    const std::size_t wanted = 32 + 16 * (random() % 220);
    const auto best = std::find_if(expected.begin(), expected.end(),
                                   [&](const Block* b) { return b->block_bytes() >= wanted; });
    ASSERT_EQ(TypeParam::find(tree, wanted, AcceptAll{}), best == expected.end() ? nullptr : *best);
    if (step % 500 != 0) continue;
    ASSERT_TRUE(tree.is_valid());
    std::vector<Block*> in_order;
    append_in_order<Tree>(tree.root(), in_order);
    ASSERT_TRUE(std::equal(in_order.begin(), in_order.end(), expected.begin(), expected.end()));
    std::size_t bytes = 0;
    for (const Block* b : expected) bytes += b->block_bytes();
    ASSERT_EQ(tree.bytes(), bytes);
  }
  for (Block* block : std::set{expected}) tree.erase(block);
  EXPECT_EQ(tree.root(), nullptr);
  EXPECT_EQ(tree.bytes(), 0U);
}

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

// A tree by address can replace a block with its tail, or with a larger block.
TEST(FreeTreeByAddress, ReplacesABlockByOneThatEndsWithIt) {
  using Tree = FirstFit::Tree;
  constexpr std::size_t places = 500;
  constexpr std::size_t stride = 4096;
  Blocks memory{places * stride + 64};
  std::mt19937_64 random{3};
  Tree tree;
  std::vector<std::size_t> sizes(places, 1024);
  const auto block_at = [&](std::size_t place) {
    return memory.make((place + 1) * stride - sizes[place], sizes[place]);
  };
  for (std::size_t place = 0; place < places; ++place) tree.insert(block_at(place));
  for (unsigned step = 0; step < 5000 / slowness; ++step) {
    const std::size_t place = random() % places;
    const std::size_t old_bytes = sizes[place];
    Block* const old = block_at(place);
    // By 32 or more, as in a heap, so that the new block's tag does not overlap the old one's
    // links.
    sizes[place] = 32 + 32 * (random() % 100);
    tree.replace(old, old_bytes, block_at(place));
    const std::size_t wanted = 32 + 16 * (random() % 200);
    const auto first = std::find_if(sizes.begin(), sizes.end(),
                                    [&](std::size_t bytes) { return bytes >= wanted; });
    const Block* const found = FirstFit::find(tree, wanted, AcceptAll{});
    ASSERT_EQ(found, first == sizes.end()
                         ? nullptr
                         : block_at(static_cast<std::size_t>(first - sizes.begin())));
    ASSERT_TRUE(step % 200 != 0 || tree.is_valid());
  }
  EXPECT_TRUE(tree.is_valid());
  EXPECT_EQ(tree.blocks(), places);
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

TYPED_TEST(FreeTreeOf, IsNotValidWhenItsLinksOrSizesAreDamaged) {
  Blocks memory{64 * 4096 + 64};
  typename TypeParam::Tree tree;
  for (std::size_t place = 0; place < 64; ++place) tree.insert(memory.make(place * 4096, 64));
  ASSERT_TRUE(tree.is_valid());
  Block* const root = tree.root();
  const std::uint64_t left = root->link_word(0);
  const std::uint64_t right = root->link_word(1);

  root->link_word(0) = right;
  root->link_word(1) = left;
  EXPECT_FALSE(tree.is_valid()) << "children exchanged";
  // Both, since the root that the blocks' addresses determine may have only one.
  root->link_word(0) = 0;
  root->link_word(1) = 0;
  EXPECT_FALSE(tree.is_valid()) << "the subtrees lost";
  root->link_word(0) = left;
  root->link_word(1) = right;
  EXPECT_TRUE(tree.is_valid());

  root->set_tag(Tag{96, 0, 0});
  EXPECT_FALSE(tree.is_valid()) << "a size changed";
  root->set_tag(Tag{64, 0, 0});
  EXPECT_TRUE(tree.is_valid());
}

}  // namespace
}  // namespace ts::testing
