// The versions of a lock-free heap's free blocks: the nodes of the trees, and one atomic word that
// names the current version. An operation reads the word, builds the next version next to the
// current one, and swaps the word; if another swap came first, it retries.
//
//   root_:  [ version, 36 bits ][ node number, 28 bits ]
//   first, worst fit: the node is the root of a tree by address, for the search and the merging
//   best fit: the node is a pair, left a tree by address, right a tree by size
//
//   publish -> edit(builder, trees)      the caller's change, out of fit_trees.h
//           -> node_of                   best fit: the pair of the new trees
//           -> compare_exchange          published, or again
//
// Why an attempt that succeeds has read the current version: the swap expects the word that was
// read at the beginning. Versions are numbered, so a word that is still equal has not changed in
// between, and nodes of the current version are never written. If a node that it read was reused
// meanwhile, another swap of the word came first, and this one fails. The order of the relaxed
// reads does not matter, since a read-modify-write always sees the latest value. ABA needs a thread
// that sleeps for exactly a multiple of 2^36 operations (hours at full speed), and the same node
// number in the root. An attempt that changes nothing (no block is large enough) compares the word
// again.
//
// Memory of free blocks leaves a thread by the swap (release) and reaches the next owner by the
// read of the word (acquire).
//
// Progress: an attempt fails only if another one has succeeded since it began, so some thread
// always makes progress. A single thread may retry without bound.
#pragma once

#include "classic/fit_trees.h"

namespace ts::classic {

enum class Attempt : std::uint8_t {
  published,  // the version that `edit` built is the current one
  unchanged,  // `edit` changed nothing, and the version that it saw was current
  no_memory,  // no memory for a node; nothing changed
};

template <FitPolicy Fit>
class Versions {
 public:
  constexpr Versions() = default;

  // Builds the next version by edit(builder, trees) -> trees, until one is published or there is
  // nothing to change.
  template <class Edit>
  Attempt publish(NodePool::Stash& stash, Edit edit) noexcept {
    for (;; count_retry()) {
      // acquire: pairs with the release of the swap that published this version; sees its nodes and
      // the memory of its blocks
      std::uint64_t root = root_.load(std::memory_order_acquire);
      const Trees trees = trees_of(root);
      VersionBuilder builder{pool_, stash, &root_, root};
      const Trees next = edit(builder, trees);
      if (builder.state() == VersionBuilder::State::sound && next != trees) {
        const NodeNumber node = node_of(builder, root, next);
        if (builder.state() == VersionBuilder::State::sound &&
            root_.compare_exchange_strong(root, next_root(root, node), std::memory_order_acq_rel,
                                          std::memory_order_relaxed)) {
          builder.succeeded();
          return Attempt::published;
        }
      }
      builder.failed();
      std::atomic_thread_fence(std::memory_order_acquire);  // keeps the reads of nodes before the
                                                            // second read of the root
      if (root_.load(std::memory_order_relaxed) != root) continue;
      if (builder.state() == VersionBuilder::State::no_memory) return Attempt::no_memory;
      if (builder.state() == VersionBuilder::State::sound && next == trees)
        return Attempt::unchanged;
      require(builder.state() != VersionBuilder::State::torn, "the tree of free blocks is damaged",
              this);
    }
  }

  // The current trees, for readers that exclude all changes.
  Trees trees() const noexcept { return trees_of(root_.load(std::memory_order_acquire)); }

  constexpr NodePool& pool() noexcept { return pool_; }

 private:
  static constexpr bool by_size_too = FitTrees<Fit>::by_size_too;
  static constexpr std::uint64_t node_mask = (std::uint64_t{1} << node_number_bits) - 1;

  static void count_retry() noexcept {
    if constexpr (counting) count_event(Event::retries);
  }

  static std::uint64_t next_root(std::uint64_t root, NodeNumber node) noexcept {
    return ((root >> node_number_bits) + 1) << node_number_bits | node;
  }

  Trees trees_of(std::uint64_t root) const noexcept {
    const auto node = static_cast<NodeNumber>(root & node_mask);
    if constexpr (by_size_too) {
      if (node == 0) return {0, 0};
      return {pool_.at(node).left.load(std::memory_order_relaxed),
              pool_.at(node).right.load(std::memory_order_relaxed)};
    }
    return {node, 0};
  }

  static NodeNumber node_of(VersionBuilder& builder, std::uint64_t root,
                            const Trees& trees) noexcept {
    if constexpr (!by_size_too) return trees.by_address;
    if (const auto old_pair = static_cast<NodeNumber>(root & node_mask)) builder.discard(old_pair);
    return trees.by_address == 0 ? 0
                                 : builder.make<BySize>({0, 0}, trees.by_address, trees.by_size);
  }

  NodePool pool_;
  std::atomic<std::uint64_t> root_{0};
};

}  // namespace ts::classic
