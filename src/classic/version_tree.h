// Free blocks as an immutable tree. A change builds the next version next to the current one and
// shares all but the nodes on its path. So one compare-and-swap of the root publishes it.
// (Driscoll, Sarnak, Sleator and Tarjan, "Making data structures persistent", 1989.) The tree is
// the same treap as in free_tree.h, with the nodes outside the blocks.
//
// A thread may walk an outdated version whose nodes other threads reuse, and read any mixture of
// nodes. Every number in a node belongs to a mapped node, so each read is harmless. Every step is
// counted, so a circular walk ends. The thread writes only its own new nodes, so the attempt leaves
// no trace when its compare-and-swap fails, as it must (versions.h).
#pragma once

#include "base/bits.h"
#include "base/event_counts.h"
#include "classic/node_pool.h"

namespace ts::classic {

// A free block as a value.
struct Extent {
  std::uintptr_t address;
  std::size_t bytes;

  std::uintptr_t end() const noexcept { return address + bytes; }
  bool operator==(const Extent&) const = default;
};

struct ByAddress {
  static constexpr bool augmented = true;  // nodes know the largest block of their subtree
  static bool before(const Extent& a, const Extent& b) noexcept { return a.address < b.address; }
};

struct BySize {
  static constexpr bool augmented = false;
  static bool before(const Extent& a, const Extent& b) noexcept {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.address < b.address;
  }
};

// One attempt to build the next version. Not shared; on the stack of the thread that makes the
// attempt.
class VersionBuilder {
 public:
  // `root` held `seen` when the attempt began; once it no longer does, the attempt is abandoned.
  VersionBuilder(NodePool& pool, NodePool::Stash& stash,
                 const std::atomic<std::uint64_t>* root = nullptr, std::uint64_t seen = 0) noexcept
      : pool_{pool}, stash_{stash}, root_{root}, seen_{seen} {}
  VersionBuilder(const VersionBuilder&) = delete;
  VersionBuilder& operator=(const VersionBuilder&) = delete;

  enum class State : std::uint8_t {
    sound,
    torn,       // more steps than any tree needs: the version was outdated
    no_memory,  // no memory for a node
  };
  State state() const noexcept { return state_; }

  // The trees without or with one block, which must or must not be in the tree. 0 is the empty
  // tree.
  template <class Order>
  NodeNumber erase(NodeNumber t, const Extent& block) noexcept {
    if (!step(t)) return 0;
    const View here = look(t);
    if (here.block.address == block.address) {
      discard(t);
      return merge<Order>(here.left, here.right);
    }
    return Order::before(block, here.block)
               ? copy<Order>(t, here, erase<Order>(here.left, block), here.right)
               : copy<Order>(t, here, here.left, erase<Order>(here.right, block));
  }

  template <class Order>
  NodeNumber insert(NodeNumber t, const Extent& block) noexcept {
    if (t == 0) return make<Order>(block, 0, 0);
    if (!step(t)) return 0;
    const View here = look(t);
    if (priority(here.block) < priority(block)) {
      const Halves halves = split<Order>(t, block);
      return make<Order>(block, halves.low, halves.high);
    }
    return Order::before(block, here.block)
               ? copy<Order>(t, here, insert<Order>(here.left, block), here.right)
               : copy<Order>(t, here, here.left, insert<Order>(here.right, block));
  }

  // The tree by address with `fresh` in the place of `block`: both end at the same address, and no
  // free block is between their beginnings.
  NodeNumber replace(NodeNumber t, const Extent& block, const Extent& fresh) noexcept {
    if (!step(t)) return 0;
    const View here = look(t);
    if (here.block.address == block.address) {
      discard(t);
      return make<ByAddress>(fresh, here.left, here.right);
    }
    return ByAddress::before(block, here.block)
               ? copy<ByAddress>(t, here, replace(here.left, block, fresh), here.right)
               : copy<ByAddress>(t, here, here.left, replace(here.right, block, fresh));
  }

  // The lowest block of at least `bytes`, in a tree by address; bytes == 0 in the result if there
  // is none.
  Extent lowest(NodeNumber t, std::size_t bytes) noexcept {
    while (t != 0 && largest(t) >= bytes && step(t)) {
      if constexpr (counting) count_event(Event::blocks_searched);
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
      if constexpr (counting) count_event(Event::blocks_searched);
      const View here = look(t);
      if (here.block.bytes >= bytes) found = here.block;
      t = here.block.bytes >= bytes ? here.left : here.right;
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
      const View here = look(t);
      const bool is_before = here.block.address < address;
      (is_before ? found.before : found.after) = here.block;
      t = is_before ? here.right : here.left;
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

  // A node with two subtrees and any block (the root that the strategy puts over two trees is one).
  template <class Order>
  NodeNumber make(const Extent& block, NodeNumber low, NodeNumber high) noexcept {
    if (state_ != State::sound) return 0;
    const NodeNumber number = pool_.take(stash_);
    if (number == 0) {
      state_ = State::no_memory;
      return 0;
    }
    Node& node = pool_.at(number);
    node.left.store(low, std::memory_order_relaxed);
    node.right.store(high, std::memory_order_relaxed);
    node.address.store(block.address, std::memory_order_relaxed);
    node.bytes.store(block.bytes, std::memory_order_relaxed);
    if constexpr (Order::augmented) {
      std::size_t most = block.bytes;
      for (const NodeNumber child : {low, high})
        most = largest(child) > most ? largest(child) : most;
      node.largest.store(most, std::memory_order_relaxed);
    }
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

  // Frees the nodes that a published attempt replaced, or those that a failed one made.
  void succeeded() noexcept { recycle(discarded_, discarded_count_); }
  void failed() noexcept { recycle(made_, made_count_); }

 private:
  // More nodes than an operation on any tree touches, since it walks at most six paths. A treap of
  // 2^27 blocks is deeper than 120 with a probability below 2^-40.
  static constexpr unsigned max_steps = 1024;
  static constexpr unsigned max_changes = 640;
  // A walk recurses, so an outdated one must end before max_steps, or it would overrun the stack of
  // a small thread.
  static constexpr unsigned steps_per_look = 8;

  static std::uint64_t priority(const Extent& block) noexcept { return mix(block.end()); }

  bool is_outdated() const noexcept {
    return root_ != nullptr && root_->load(std::memory_order_relaxed) != seen_;
  }

  bool step(NodeNumber t) noexcept {
    if (state_ == State::sound &&
        (t == 0 || ++steps_ > max_steps || (steps_ % steps_per_look == 0 && is_outdated())))
      state_ = State::torn;
    return state_ == State::sound;
  }

  struct View {
    Extent block;
    NodeNumber left;
    NodeNumber right;
  };
  View look(NodeNumber t) const noexcept {
    const Node& node = pool_.at(t);
    return {
        {node.address.load(std::memory_order_relaxed), node.bytes.load(std::memory_order_relaxed)},
        node.left.load(std::memory_order_relaxed),
        node.right.load(std::memory_order_relaxed)};
  }

  // A copy of `t`, which has the content `view`, with other subtrees.
  template <class Order>
  NodeNumber copy(NodeNumber t, const View& view, NodeNumber low, NodeNumber high) noexcept {
    discard(t);
    return make<Order>(view.block, low, high);
  }

  struct Halves {
    NodeNumber low;
    NodeNumber high;
  };
  template <class Order>
  Halves split(NodeNumber t, const Extent& key) noexcept {
    if (t == 0 || !step(t)) return {0, 0};
    const View here = look(t);
    if (Order::before(here.block, key)) {
      const Halves halves = split<Order>(here.right, key);
      return {copy<Order>(t, here, here.left, halves.low), halves.high};
    }
    const Halves halves = split<Order>(here.left, key);
    return {halves.low, copy<Order>(t, here, halves.high, here.right)};
  }

  template <class Order>
  NodeNumber merge(NodeNumber low, NodeNumber high) noexcept {
    if (low == 0) return high;
    if (high == 0) return low;
    if (!step(low)) return 0;
    const View lower = look(low);
    const View higher = look(high);
    return priority(lower.block) > priority(higher.block)
               ? copy<Order>(low, lower, lower.left, merge<Order>(lower.right, high))
               : copy<Order>(high, higher, merge<Order>(low, higher.left), higher.right);
  }

  void recycle(const NodeNumber* numbers, unsigned count) noexcept {
    for (unsigned i = 0; i < count; ++i) pool_.put(stash_, numbers[i]);
  }

  NodePool& pool_;
  NodePool::Stash& stash_;
  const std::atomic<std::uint64_t>* root_;  // null where no thread publishes
  std::uint64_t seen_;
  State state_ = State::sound;
  unsigned steps_ = 0;
  unsigned made_count_ = 0;
  unsigned discarded_count_ = 0;
  NodeNumber made_[max_changes];
  NodeNumber discarded_[max_changes];
};

}  // namespace ts::classic
