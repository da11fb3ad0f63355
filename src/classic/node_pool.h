// Memory for the nodes of a version tree (version_tree.h). Nodes are found by number, never
// unmapped, and reused as nodes only, so that a read of a reused one is harmless. Takes no lock. Of
// a node's contents, uses only the links of free ones.
//
//   number: 28 bits = slab (13) | node in slab (15); number 0 is no node
//
// Free nodes are in chains: a stash per thread, and a stack of shared chains.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/platform.h"

namespace ts::classic {

using NodeNumber = std::uint32_t;
inline constexpr int node_number_bits = 28;

// A free block in one version of the tree. All accesses are relaxed: a node is private until its
// version is published, and immutable while that version is current. Values read from an outdated
// version are discarded.
struct Node {
  std::atomic<NodeNumber> left;   // in a chain: the next node of the chain
  std::atomic<NodeNumber> right;  // first of a chain in the shared stack: the next chain
  std::atomic<std::uintptr_t> address;
  std::atomic<std::size_t> bytes;    // first of a chain in the shared stack: nodes in the chain
  std::atomic<std::size_t> largest;  // of the blocks in this subtree
};

class NodePool {
 public:
  // A chain of free nodes that one thread holds.
  struct Stash {
    NodeNumber first = 0;
    unsigned count = 0;
  };

  constexpr NodePool() = default;
  NodePool(const NodePool&) = delete;
  NodePool& operator=(const NodePool&) = delete;

  Node& at(NodeNumber number) const noexcept {
    // acquire: pairs with the release that published the slab
    return slabs_[number >> slab_bits].load(std::memory_order_acquire)[number & (slab_nodes - 1)];
  }

  // A node for this thread only; 0 if the system refuses memory.
  NodeNumber take(Stash& stash) noexcept {
    if (stash.first == 0 && !refill_slow(stash)) return 0;
    const NodeNumber number = stash.first;
    stash.first = at(number).left.load(std::memory_order_relaxed);
    --stash.count;
    return number;
  }

  void put(Stash& stash, NodeNumber number) noexcept {
    at(number).left.store(stash.first, std::memory_order_relaxed);
    stash.first = number;
    ++stash.count;
  }

  // Ensures that a stash holds at least `count` nodes; false if the system refuses memory.
  bool reserve(Stash& stash, unsigned count) noexcept;

  // Moves the surplus of a stash to the shared stack.
  void balance(Stash& stash) noexcept {
    if (stash.count > max_stash) share_slow(stash, stash.count - max_stash / 2);
  }

  // Moves a whole stash to the shared stack.
  void share_all(Stash& stash) noexcept {
    if (stash.count != 0) share_slow(stash, stash.count);
  }

  // Unmaps everything; no thread may be inside.
  void destroy() noexcept;

  std::size_t mapped_bytes() const noexcept;

 private:
  static constexpr int slab_bits = 15;
  static constexpr NodeNumber slab_nodes = 1U << slab_bits;
  static constexpr NodeNumber max_slabs = 1U << (node_number_bits - slab_bits);
  static constexpr unsigned fresh_nodes = 64;  // never used before; taken this many at a time
  static constexpr unsigned max_stash = 512;   // a few operations' worth of paths

  bool refill_slow(Stash& stash) noexcept;
  bool refill_fresh(Stash& stash) noexcept;
  void share_slow(Stash& stash, unsigned count) noexcept;
  bool map_slab(NodeNumber slab) noexcept;

  // The shared stack: number of the first chain (28 bits) and a count of pops and pushes (36 bits)
  // against ABA. Only a pop that sleeps through exactly a multiple of 2^36 operations, and then
  // finds the same chain on top, fails.
  std::atomic<std::uint64_t> chains_{0};
  std::atomic<NodeNumber> next_fresh_{
      slab_nodes};  // the first slab stays unused, so that no node has number 0
  std::atomic<Node*> slabs_[max_slabs]{};
};

}  // namespace ts::classic
