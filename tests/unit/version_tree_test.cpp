// Parts of the lock-free strategy: the node pool under contention, and the tree whose old versions
// stay unchanged.
#include "classic/version_tree.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#include "unit/heaps.h"
#include "unit/worker.h"

namespace ts::testing {
namespace {

struct Pool {
  std::unique_ptr<NodePool> nodes = std::make_unique<NodePool>();
  ~Pool() { nodes->destroy(); }
};

TEST(NodePoolTest, HandsOutEachNodeOnce) {
  Pool pool;
  NodePool::Stash stash;
  std::set<NodeNumber> seen;
  for (int i = 0; i < 100'000; ++i) {  // several slabs
    const NodeNumber number = pool.nodes->take(stash);
    ASSERT_NE(number, 0U);
    ASSERT_TRUE(seen.insert(number).second);
    pool.nodes->at(number).bytes.store(number);
  }
  for (const NodeNumber number : seen) ASSERT_EQ(pool.nodes->at(number).bytes.load(), number);
}

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

// Nodes move between threads through the shared chains; each has one owner at any time.
TEST(NodePoolTest, GivesEachNodeToOneThreadAtATime) {
  Pool pool;
  constexpr unsigned threads = 6;
  constexpr unsigned rounds = 3000 / slowness;
  run_threads(threads, [&](unsigned i) {
    std::mt19937_64 random{i};
    NodePool::Stash stash;
    std::vector<NodeNumber> mine;
    for (unsigned round = 0; round < rounds; ++round) {
      for (std::size_t n = random() % 200; n > 0; --n) {
        const NodeNumber number = pool.nodes->take(stash);
        ASSERT_NE(number, 0U);
        // Only the owner writes, so a second owner would be noticed here.
        pool.nodes->at(number).address.store(i + 1, std::memory_order_relaxed);
        mine.push_back(number);
      }
      while (mine.size() > random() % 300) {
        const NodeNumber number = mine.back();
        mine.pop_back();
        ASSERT_EQ(pool.nodes->at(number).address.load(std::memory_order_relaxed), i + 1);
        pool.nodes->put(stash, number);
      }
      pool.nodes->balance(stash);
      if (random() % 16 == 0) pool.nodes->share_all(stash);
    }
    for (const NodeNumber number : mine) pool.nodes->put(stash, number);
    pool.nodes->share_all(stash);
  });
}

// ---- Version trees ----

template <class Order>
struct Before {
  bool operator()(const Extent& a, const Extent& b) const { return Order::before(a, b); }
};
template <class Order>
using Model = std::set<Extent, Before<Order>>;

template <class Order>
class VersionTreeOf : public ::testing::Test {
 protected:
  // One change, made as the heap does: one builder per attempt.
  template <class Edit>
  NodeNumber change(Edit edit) {
    VersionBuilder builder{*pool.nodes, stash};
    const NodeNumber root = edit(builder);
    EXPECT_EQ(builder.state(), VersionBuilder::State::sound);
    builder.succeeded();
    return root;
  }

  std::vector<Extent> contents(NodeNumber t) {
    VersionBuilder reader{*pool.nodes, none};
    std::vector<Extent> out;
    append(reader, t, out);
    return out;
  }

  void append(VersionBuilder& reader, NodeNumber t, std::vector<Extent>& out) {
    if (t == 0) return;
    append(reader, reader.left(t), out);
    out.push_back(reader.extent(t));
    if constexpr (Order::augmented) {
      std::size_t most = reader.extent(t).bytes;
      for (const NodeNumber child : {reader.left(t), reader.right(t)})
        most = std::max(most, reader.largest(child));
      EXPECT_EQ(reader.largest(t), most);
    }
    append(reader, reader.right(t), out);
  }

  Pool pool;
  NodePool::Stash stash;
  NodePool::Stash none;
};

struct OrderNames {
  template <class Order>
  static std::string GetName(int) {
    return std::is_same_v<Order, ByAddress> ? "by_address" : "by_size";
  }
};
using Orders = ::testing::Types<ByAddress, BySize>;
TYPED_TEST_SUITE(VersionTreeOf, Orders, OrderNames);

Extent random_extent(std::mt19937_64& random) {
  return {8 + 4096 * (random() % 1500), 32 + 16 * (random() % 30)};
}

TYPED_TEST(VersionTreeOf, HoldsWhatASetHolds) {
  std::mt19937_64 random{5};
  std::map<std::uintptr_t, std::size_t> by_address;
  Model<TypeParam> expected;
  NodeNumber root = 0;
  for (unsigned step = 0; step < 30'000 / slowness; ++step) {
    const Extent extent = random_extent(random);
    const auto found = by_address.find(extent.address);
    if (found == by_address.end()) {
      by_address.insert({extent.address, extent.bytes});
      expected.insert(extent);
      root = this->change(
          [&](VersionBuilder& b) { return b.template insert<TypeParam>(root, extent); });
    } else {
      const Extent old{found->first, found->second};
      by_address.erase(found);
      expected.erase(old);
      root =
          this->change([&](VersionBuilder& b) { return b.template erase<TypeParam>(root, old); });
    }
    if (step % 500 == 0) {
      const std::vector<Extent> contents = this->contents(root);
      ASSERT_TRUE(std::equal(contents.begin(), contents.end(), expected.begin(), expected.end()));
    }
  }
}

// The version before the change is still there, node by node, as long as nothing was recycled.
TYPED_TEST(VersionTreeOf, LeavesTheOldVersionAsItWas) {
  std::mt19937_64 random{6};
  std::vector<NodeNumber> versions{0};
  std::vector<Model<TypeParam>> models{{}};
  std::set<std::uintptr_t> addresses;
  for (int step = 0; step < 200; ++step) {
    VersionBuilder builder{*this->pool.nodes, this->stash};
    Model<TypeParam> next = models.back();
    const Extent extent = random_extent(random);
    NodeNumber root = 0;
    if (addresses.insert(extent.address).second) {
      next.insert(extent);
      root = builder.template insert<TypeParam>(versions.back(), extent);
    } else {
      const auto old = std::find_if(next.begin(), next.end(),
                                    [&](const Extent& e) { return e.address == extent.address; });
      const Extent erased = *old;
      next.erase(old);
      addresses.erase(extent.address);
      root = builder.template erase<TypeParam>(versions.back(), erased);
    }
    ASSERT_EQ(builder.state(), VersionBuilder::State::sound);
    versions.push_back(root);
    models.push_back(next);
  }
  for (std::size_t i = 0; i < versions.size(); ++i) {
    const std::vector<Extent> contents = this->contents(versions[i]);
    ASSERT_TRUE(std::equal(contents.begin(), contents.end(), models[i].begin(), models[i].end()))
        << "version " << i;
  }
}

// A failed attempt returns all its nodes, a successful one those that it replaced: in the long run
// a tree costs one node per block.
TYPED_TEST(VersionTreeOf, LosesNoNodes) {
  std::mt19937_64 random{7};
  NodeNumber root = 0;
  std::vector<Extent> inside;
  for (std::uintptr_t i = 0; i < 500; ++i) {
    inside.push_back({8 + 4096 * i, 32 + 16 * (random() % 30)});
    root = this->change(
        [&](VersionBuilder& b) { return b.template insert<TypeParam>(root, inside.back()); });
  }
  const std::size_t mapped = this->pool.nodes->mapped_bytes();
  for (unsigned step = 0; step < 200'000 / slowness; ++step) {
    VersionBuilder builder{*this->pool.nodes, this->stash};
    const Extent extent = inside[random() % inside.size()];
    const NodeNumber without = builder.template erase<TypeParam>(root, extent);
    const NodeNumber next = builder.template insert<TypeParam>(without, extent);
    if (step % 3 == 0) {
      builder.failed();
    } else {
      root = next;
      builder.succeeded();
    }
    ASSERT_LT(this->stash.count, 5000U);
  }
  EXPECT_EQ(this->pool.nodes->mapped_bytes(), mapped);
  EXPECT_EQ(this->contents(root).size(), 500U);
}

TEST(VersionTree, FindsLowestSmallestLargestAndNeighbours) {
  Pool pool;
  NodePool::Stash stash;
  std::mt19937_64 random{8};
  Model<ByAddress> by_address;
  Model<BySize> by_size;
  NodeNumber address_root = 0;
  NodeNumber size_root = 0;
  for (std::uintptr_t place = 0; place < 300; ++place) {
    const Extent extent{8 + 4096 * place, 32 + 16 * (random() % 60)};
    by_address.insert(extent);
    by_size.insert(extent);
    VersionBuilder builder{*pool.nodes, stash};
    address_root = builder.insert<ByAddress>(address_root, extent);
    size_root = builder.insert<BySize>(size_root, extent);
    builder.succeeded();
  }
  VersionBuilder builder{*pool.nodes, stash};
  EXPECT_EQ(builder.largest(address_root), by_size.rbegin()->bytes);
  for (int i = 0; i < 100; ++i) {
    VersionBuilder reader{*pool.nodes, stash};
    const std::size_t wanted = 32 + 16 * (random() % 64);
    const auto large_enough = [&](const Extent& e) { return e.bytes >= wanted; };
    const auto lowest = std::find_if(by_address.begin(), by_address.end(), large_enough);
    const Extent none{0, 0};
    EXPECT_EQ(reader.lowest(address_root, wanted), lowest == by_address.end() ? none : *lowest);
    const auto smallest = std::find_if(by_size.begin(), by_size.end(), large_enough);
    EXPECT_EQ(reader.smallest(size_root, wanted), smallest == by_size.end() ? none : *smallest);

    const std::uintptr_t address = random() % (302 * 4096);
    const auto after = by_address.lower_bound({address, 0});
    const VersionBuilder::Neighbours near = reader.neighbours(address_root, address);
    EXPECT_EQ(near.after, after == by_address.end() ? none : *after);
    EXPECT_EQ(near.before, after == by_address.begin() ? none : *std::prev(after));
    EXPECT_EQ(reader.state(), VersionBuilder::State::sound);
  }
}

// In a tree by address, a block shrinks to its tail or grows downwards in place.
TEST(VersionTree, ReplacesABlockByOneThatEndsWithIt) {
  Pool pool;
  NodePool::Stash stash;
  std::mt19937_64 random{9};
  std::vector<Extent> expected;
  NodeNumber root = 0;
  for (std::uintptr_t place = 1; place <= 200; ++place) {
    expected.push_back({4096 * place - 512, 512});
    VersionBuilder builder{*pool.nodes, stash};
    root = builder.insert<ByAddress>(root, expected.back());
    builder.succeeded();
  }
  for (int step = 0; step < 2000; ++step) {
    Extent& extent = expected[random() % expected.size()];
    const std::size_t bytes = 32 + 16 * (random() % 100);
    const Extent fresh{extent.end() - bytes, bytes};
    VersionBuilder builder{*pool.nodes, stash};
    root = builder.replace(root, extent, fresh);
    ASSERT_EQ(builder.state(), VersionBuilder::State::sound);
    builder.succeeded();
    extent = fresh;
    const std::size_t wanted = 32 + 16 * (random() % 110);
    const auto lowest = std::find_if(expected.begin(), expected.end(),
                                     [&](const Extent& e) { return e.bytes >= wanted; });
    VersionBuilder reader{*pool.nodes, stash};
    const Extent none{0, 0};
    ASSERT_EQ(reader.lowest(root, wanted), lowest == expected.end() ? none : *lowest);
  }
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
