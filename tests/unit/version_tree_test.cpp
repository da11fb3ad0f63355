// Parts of the lock-free strategy: the nodes of its trees, none of which is lost, and what a reader
// does in a version that is being overwritten. (tests/property and tests/stress have the trees'
// contents.)
#include "classic/version_tree.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "unit/heaps.h"

namespace ts::testing {
namespace {

struct Pool {
  std::unique_ptr<NodePool> nodes = std::make_unique<NodePool>();
  ~Pool() { nodes->destroy(); }
};

TEST(NodePoolTest, UsesNodesAgainBeforeItMapsMore) {
  Pool pool;
  NodePool::Stash mine;
  NodePool::Stash other;
  std::vector<NodeNumber> taken;
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 3000; ++i) taken.push_back(pool.nodes->take(mine));
    for (const NodeNumber number : taken) pool.nodes->put(other, number);
    taken.clear();
    pool.nodes->balance(other);
    EXPECT_LE(other.count, 512U);
    std::swap(mine, other);
    pool.nodes->share_all(other);
    EXPECT_EQ(other.count, 0U);
  }
  EXPECT_LE(pool.nodes->mapped_bytes(), (std::size_t{1} << 15) * sizeof(Node));
  pool.nodes->destroy();
  EXPECT_EQ(pool.nodes->mapped_bytes(), 0U);
}

// A failed attempt returns all its nodes, a successful one those that it replaced: in the long run
// a tree costs one node per block.
template <class Order>
void change_often() {
  Pool pool;
  NodePool::Stash stash;
  std::mt19937_64 random{7};
  NodeNumber root = 0;
  std::vector<Extent> inside;
  for (std::uintptr_t i = 0; i < 500; ++i) {
    inside.push_back({8 + 4096 * i, 32 + 16 * (random() % 30)});
    VersionBuilder builder{*pool.nodes, stash};
    root = builder.insert<Order>(root, inside.back());
    builder.succeeded();
  }
  const std::size_t mapped = pool.nodes->mapped_bytes();
  for (unsigned step = 0; step < 200'000 / slowness; ++step) {
    VersionBuilder builder{*pool.nodes, stash};
    const Extent extent = inside[random() % inside.size()];
    const NodeNumber without = builder.erase<Order>(root, extent);
    const NodeNumber next = builder.insert<Order>(without, extent);
    ASSERT_EQ(builder.state(), VersionBuilder::State::sound);
    if (step % 3 == 0) {
      builder.failed();
    } else {
      root = next;
      builder.succeeded();
    }
    ASSERT_LT(stash.count, 5000U);
  }
  EXPECT_EQ(pool.nodes->mapped_bytes(), mapped);
}

TEST(VersionTree, LosesNoNodes) {
  change_often<ByAddress>();
  change_often<BySize>();
}

// A reader of a version that is being overwritten may walk in a cycle: it stops and reports that.
TEST(VersionTree, NoticesACircle) {
  Pool pool;
  NodePool::Stash stash;
  VersionBuilder builder{*pool.nodes, stash};
  const NodeNumber a = builder.make<ByAddress>({8, 64}, 0, 0);
  const NodeNumber b = builder.make<ByAddress>({4104, 64}, a, a);
  pool.nodes->at(a).right.store(b);
  VersionBuilder walker{*pool.nodes, stash};
  walker.neighbours(a, 8192);
  EXPECT_EQ(walker.state(), VersionBuilder::State::torn);
  VersionBuilder changer{*pool.nodes, stash};
  changer.erase<ByAddress>(a, {1 << 20, 64});
  EXPECT_EQ(changer.state(), VersionBuilder::State::torn);
  changer.failed();
}

}  // namespace
}  // namespace ts::testing
