// The three fits, which choose the free block for a request. A fit is an order of the free blocks,
// and takes the first acceptable one in that order. The tree inserts, erases and balances
// (free_tree.h); the heap splits and merges (free_blocks.h).
//
//   first: of all blocks that are large enough, the lowest address
//   best:  the smallest that is large enough; among equals the lowest address
//   worst: the largest; among equals the lowest address
//
// Each search is a descent of O(log n) over n free blocks, plus one step for each block that
// `accept` rejects. A strategy in which several threads search at once claims the block in
// `accept`; under a lock, every block is accepted.
#pragma once

#include "base/event_counts.h"
#include "classic/free_tree.h"

namespace ts::classic {

struct AcceptAll {
  constexpr bool operator()(Block*) const noexcept { return true; }
};

template <class F>
concept FitPolicy = TreeOrder<typename F::Order> &&
                    requires(const FreeTree<typename F::Order>& tree, std::size_t bytes) {
                      { F::find(tree, bytes, AcceptAll{}) } -> std::same_as<Block*>;
                    };

// The lowest address: a tree by address in which every node knows the largest block below it.
// (After Stephenson, "Fast fits", 1983, whose tree is balanced by size only.)
struct FirstFit {
  struct Order {
    static constexpr bool by_address = true;
    static bool before(const Block& a, const Block& b) noexcept {
      return a.address() < b.address();
    }
  };
  using Tree = FreeTree<Order>;

  template <class Accept>
  static Block* find(const Tree& tree, std::size_t bytes, Accept accept) noexcept {
    return find_below(tree.root(), bytes, accept);
  }

 private:
  template <class Accept>
  static Block* find_below(Block* t, std::size_t bytes, Accept& accept) noexcept {
    while (t != nullptr && Tree::largest(t) >= bytes) {
      if constexpr (counting) count_event(Event::blocks_searched);
      Block* const left = Tree::left(t);
      if (left != nullptr && Tree::largest(left) >= bytes) {
        if (Block* found = find_below(left, bytes, accept)) return found;
      }
      if (t->block_bytes() >= bytes && accept(t)) return t;
      t = Tree::right(t);
    }
    return nullptr;
  }
};

// The smallest sufficient size: a tree by size, then address.
struct BestFit {
  struct Order {
    static constexpr bool by_address = false;
    static bool before(const Block& a, const Block& b) noexcept {
      return a.block_bytes() != b.block_bytes() ? a.block_bytes() < b.block_bytes()
                                                : a.address() < b.address();
    }
  };
  using Tree = FreeTree<Order>;

  template <class Accept>
  static Block* find(const Tree& tree, std::size_t bytes, Accept accept) noexcept {
    return find_below(tree.root(), bytes, accept);
  }

 private:
  template <class Accept>
  static Block* find_below(Block* t, std::size_t bytes, Accept& accept) noexcept {
    while (t != nullptr) {
      if constexpr (counting) count_event(Event::blocks_searched);
      if (t->block_bytes() >= bytes) {
        if (Block* found = find_below(Tree::left(t), bytes, accept)) return found;
        if (accept(t)) return t;
      }
      t = Tree::right(t);
    }
    return nullptr;
  }
};

// The largest: the same tree, sizes descending, so that the answer is its first block.
struct WorstFit {
  struct Order {
    static constexpr bool by_address = false;
    static bool before(const Block& a, const Block& b) noexcept {
      return a.block_bytes() != b.block_bytes() ? a.block_bytes() > b.block_bytes()
                                                : a.address() < b.address();
    }
  };
  using Tree = FreeTree<Order>;

  template <class Accept>
  static Block* find(const Tree& tree, std::size_t bytes, Accept accept) noexcept {
    return find_below(tree.root(), bytes, accept);
  }

 private:
  template <class Accept>
  static Block* find_below(Block* t, std::size_t bytes, Accept& accept) noexcept {
    while (t != nullptr) {
      if constexpr (counting) count_event(Event::blocks_searched);
      if (Block* found = find_below(Tree::left(t), bytes, accept)) return found;
      if (t->block_bytes() < bytes) return nullptr;  // and so is every later one
      if (accept(t)) return t;
      t = Tree::right(t);
    }
    return nullptr;
  }
};

static_assert(FitPolicy<FirstFit> && FitPolicy<BestFit> && FitPolicy<WorstFit>);

}  // namespace ts::classic
