// Free blocks as an immutable tree: a change builds the next version beside the current one,
// sharing all but the nodes on its path (Driscoll, Sarnak, Sleator and Tarjan, "Making data
// structures persistent", 1989), so that one compare-and-swap of the root can publish it. The tree
// is the same treap as free_tree.h, with the nodes outside the blocks.
//
// A thread may find itself walking an outdated version whose nodes others are reusing. It may then
// read any mixture of nodes: every number in a node is that of a mapped node, so reading is
// harmless; every step is counted, so walking in a circle ends; and since nothing but the thread's
// own new nodes is written, the attempt leaves no trace when its compare-and-swap fails, which it
// must (lock_free.h).
#pragma once

#include "base/bits.h"
#include "classic/node_pool.h"

namespace ts::classic {

// A free block as a value.
struct Extent {
  std::uintptr_t address;
  std::size_t bytes;

  std::uintptr_t end() const noexcept { return address + bytes; }
};

struct ByAddress {
  static bool before(const Extent& a, const Extent& b) noexcept { return a.address < b.address; }
};

struct BySize {
  static bool before(const Extent& a, const Extent& b) noexcept {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.address < b.address;
  }
};

// One attempt to build the next version. Not shared; lives on the stack of the thread that makes
// the attempt.
class VersionBuilder {
 public:
  VersionBuilder(NodePool& pool, NodePool::Stash& stash) noexcept : pool_{pool}, stash_{stash} {}
  VersionBuilder(const VersionBuilder&) = delete;
  VersionBuilder& operator=(const VersionBuilder&) = delete;

  enum class State : std::uint8_t {
    sound,
    torn,       // more steps than any tree needs: the version was outdated
    no_memory,  // no node to be had
  };
  State state() const noexcept { return state_; }

  // The trees without / with one block; the block is in the tree / is not. 0 is the empty tree.
  template <class Order>
  NodeNumber erase(NodeNumber t, const Extent& block) noexcept {
    if (!step(t)) return 0;
    const Extent here = extent(t);
    if (here.address == block.address) {
      discard(t);
      return merge(left(t), right(t));
    }
    return Order::before(block, here) ? copy(t, erase<Order>(left(t), block), right(t))
                                      : copy(t, left(t), erase<Order>(right(t), block));
  }

  template <class Order>
  NodeNumber insert(NodeNumber t, const Extent& block) noexcept {
    if (state_ != State::sound) return 0;
    if (t == 0 || (step(t) && priority(extent(t)) < priority(block))) {
      const Halves halves = split<Order>(t, block);
      return make(block, halves.low, halves.high);
    }
    return Order::before(block, extent(t)) ? copy(t, insert<Order>(left(t), block), right(t))
                                           : copy(t, left(t), insert<Order>(right(t), block));
  }

  // The lowest block of at least `bytes`, in a tree by address; bytes == 0 in the result if there
  // is none.
  Extent lowest(NodeNumber t, std::size_t bytes) noexcept {
    while (t != 0 && largest(t) >= bytes && step(t)) {
      if (largest(left(t)) >= bytes) {
        t = left(t);
      } else if (extent(t).bytes >= bytes) {
        return extent(t);
      } else {
        t = right(t);
      }
    }
    return {0, 0};
  }

  // The smallest block of at least `bytes`, the lowest among equals, in a tree by size.
  Extent smallest(NodeNumber t, std::size_t bytes) noexcept {
    Extent found{0, 0};
    while (t != 0 && step(t)) {
      const Extent here = extent(t);
      if (here.bytes >= bytes) found = here;
      t = here.bytes >= bytes ? left(t) : right(t);
    }
    return found;
  }

  // The blocks on both sides of an address, in a tree by address.
  struct Neighbours {
    Extent before;  // bytes == 0 if there is none
    Extent after;
  };
  Neighbours neighbours(NodeNumber t, std::uintptr_t address) noexcept {
    Neighbours found{};
    while (t != 0 && step(t)) {
      const Extent here = extent(t);
      (here.address < address ? found.before : found.after) = here;
      t = here.address < address ? right(t) : left(t);
    }
    return found;
  }

  std::size_t largest(NodeNumber t) const noexcept {
    return t == 0 ? 0 : pool_.at(t).largest.load(std::memory_order_relaxed);
  }
  NodeNumber left(NodeNumber t) const noexcept {
    return pool_.at(t).left.load(std::memory_order_relaxed);
  }
  NodeNumber right(NodeNumber t) const noexcept {
    return pool_.at(t).right.load(std::memory_order_relaxed);
  }
  Extent extent(NodeNumber t) const noexcept {
    const Node& node = pool_.at(t);
    return {node.address.load(std::memory_order_relaxed),
            node.bytes.load(std::memory_order_relaxed)};
  }

  // A node with two subtrees and a block that may be anything (the strategy's root over two trees
  // is one).
  NodeNumber make(const Extent& block, NodeNumber low, NodeNumber high) noexcept {
    if (state_ != State::sound) return 0;
    const NodeNumber number = pool_.take(stash_);
    if (number == 0) {
      state_ = State::no_memory;
      return 0;
    }
    std::size_t most = block.bytes;
    for (const NodeNumber child : {low, high}) most = largest(child) > most ? largest(child) : most;
    Node& node = pool_.at(number);
    node.left.store(low, std::memory_order_relaxed);
    node.right.store(high, std::memory_order_relaxed);
    node.address.store(block.address, std::memory_order_relaxed);
    node.bytes.store(block.bytes, std::memory_order_relaxed);
    node.largest.store(most, std::memory_order_relaxed);
    if (made_count_ < max_changes)
      made_[made_count_++] = number;
    else
      state_ = State::torn;
    return number;
  }

  // The node is not in the version being built.
  void discard(NodeNumber t) noexcept {
    if (discarded_count_ < max_changes)
      discarded_[discarded_count_++] = t;
    else
      state_ = State::torn;
  }

  // The attempt was published: what it replaced is free. Or it was not: what it made is.
  void succeeded() noexcept { recycle(discarded_, discarded_count_); }
  void failed() noexcept { recycle(made_, made_count_); }

 private:
  // More nodes than an operation on any tree touches: a treap of 2^27 blocks is deeper than 120
  // with a probability below 2^-40, and an operation walks six paths at most.
  static constexpr unsigned max_steps = 1024;
  static constexpr unsigned max_changes = 640;

  static std::uint64_t priority(const Extent& block) noexcept { return mix(block.address); }

  bool step(NodeNumber t) noexcept {
    if (state_ == State::sound && (t == 0 || ++steps_ > max_steps)) state_ = State::torn;
    return state_ == State::sound;
  }

  NodeNumber copy(NodeNumber t, NodeNumber low, NodeNumber high) noexcept {
    discard(t);
    return make(extent(t), low, high);
  }

  struct Halves {
    NodeNumber low;
    NodeNumber high;
  };
  template <class Order>
  Halves split(NodeNumber t, const Extent& key) noexcept {
    if (t == 0 || !step(t)) return {0, 0};
    if (Order::before(extent(t), key)) {
      const Halves halves = split<Order>(right(t), key);
      return {copy(t, left(t), halves.low), halves.high};
    }
    const Halves halves = split<Order>(left(t), key);
    return {halves.low, copy(t, halves.high, right(t))};
  }

  NodeNumber merge(NodeNumber low, NodeNumber high) noexcept {
    if (low == 0) return high;
    if (high == 0) return low;
    if (!step(low)) return 0;
    if (priority(extent(low)) > priority(extent(high)))
      return copy(low, left(low), merge(right(low), high));
    return copy(high, merge(low, left(high)), right(high));
  }

  void recycle(const NodeNumber* numbers, unsigned count) noexcept {
    for (unsigned i = 0; i < count; ++i) pool_.put(stash_, numbers[i]);
  }

  NodePool& pool_;
  NodePool::Stash& stash_;
  State state_ = State::sound;
  unsigned steps_ = 0;
  unsigned made_count_ = 0;
  unsigned discarded_count_ = 0;
  NodeNumber made_[max_changes];
  NodeNumber discarded_[max_changes];
};

}  // namespace ts::classic
