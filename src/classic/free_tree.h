// The free blocks of one heap, kept inside those blocks: a treap (Seidel and Aragon, "Randomized
// search trees", 1996). Its priority is a hash of the address, so it needs no stored balance and no
// randomness. The expected depth is about 1.4 log2 n for any set of blocks that was not chosen to
// defeat the hash. A fit chooses among the blocks (fit.h), an Order sorts them.
//
// Two links and, if the order is augmented, the largest block size of the subtree must fit into 16
// bytes. So the smallest block has 32 bytes for every fit, and fits are comparable. Where addresses
// have 47 bits, the upper 17 bits of each of the two words hold one half of a 34-bit size in units
// of 16 bytes; with 48 bits, the upper 16 bits hold one half of a 32-bit size. Larger sizes are
// stored as the maximum, which exceeds every request.
//
//   link_word(0):  [ largest, upper 17 bits ][ left,  47 bits ]
//   link_word(1):  [ largest, lower 17 bits ][ right, 47 bits ]
//
// The priority is a hash of the address where a block ends. So an order by address can replace a
// block by a remainder at its end without changing the shape of the tree.
//
// Not thread-safe: guarded by the lock, or by the single thread, of its heap. A search only reads.
#pragma once

#include <concepts>

#include "base/counter.h"
#include "classic/block.h"

namespace ts::classic {

template <class O>
concept TreeOrder = requires(const Block& a, const Block& b) {
  { O::before(a, b) } -> std::same_as<bool>;  // strict and total: addresses break ties
  requires std::same_as<decltype(O::by_address),
                        const bool>;  // by address: each node knows its subtree's largest block
};

template <TreeOrder Order>
class FreeTree {
 public:
  constexpr FreeTree() = default;

  std::size_t blocks() const noexcept { return blocks_; }
  std::size_t bytes() const noexcept { return bytes_; }

  // Searching, for the fits: the top of the tree, and from a node downwards.
  Block* root() const noexcept { return unpack(root_); }
  static Block* left(const Block* t) noexcept { return unpack(t->link_word(0)); }
  static Block* right(const Block* t) noexcept { return unpack(t->link_word(1)); }
  static std::size_t largest(const Block* t) noexcept
    requires(Order::by_address)
  {
    return ((t->link_word(0) >> address_bits << half_bits) | (t->link_word(1) >> address_bits)) *
           granule_bytes;
  }

  // Adds a free block of the size in its tag, which must not change until the block is erased.
  void insert(Block* block) noexcept {
    ++blocks_;
    bytes_ += block->block_bytes();
    const std::uint64_t block_priority = priority(block);
    std::uint64_t* slot = &root_;
    Block* t = unpack(*slot);
    while (t != nullptr && priority(t) >= block_priority) {
      raise(t, block);
      slot = slot_towards(t, block);
      t = unpack(*slot);
    }
    set(slot, block);
    split_below(t, block);
  }

  // Removes a block that is in the tree.
  void erase(Block* block) noexcept {
    --blocks_;
    bytes_ -= block->block_bytes();
    Path path;
    std::uint64_t* slot = &root_;
    for (Block* t = unpack(*slot); t != block; t = unpack(*slot)) {
      check(t != nullptr, "free block missing from its tree", block);
      path.add(t);
      slot = slot_towards(t, block);
    }
    merge_into(slot, left(block), right(block));
    path.refresh_upwards();
  }

  // Puts `fresh` in the place of `block`: both end at the same address, and no free block is
  // between their beginnings. `block_bytes` is the size that `block` had in the tree; its tag may
  // differ.
  void replace(Block* block, std::size_t block_bytes, Block* fresh) noexcept
    requires(Order::by_address)
  {
    bytes_ += fresh->block_bytes();
    bytes_ -= block_bytes;
    Path path;
    std::uint64_t* slot = &root_;
    for (Block* t = unpack(*slot); t != block; t = unpack(*slot)) {
      check(t != nullptr, "free block missing from its tree", block);
      path.add(t);
      slot = slot_towards(t, block);
    }
    const std::uint64_t links[2] = {block->link_word(0), block->link_word(1)};
    fresh->link_word(0) = links[0];
    fresh->link_word(1) = links[1];
    set(slot, fresh);
    refresh(fresh);
    path.refresh_upwards();
  }

  // Checks order, heap property, augmentation and counts.
  bool is_valid() const noexcept {
    std::size_t blocks = 0;
    std::size_t bytes = 0;
    return valid_below(root(), nullptr, nullptr, blocks, bytes) && blocks == blocks_ &&
           bytes == bytes_;
  }

 private:
  static constexpr unsigned half_bits = 64 - address_bits;
  static constexpr std::uint64_t address_mask = (std::uint64_t{1} << address_bits) - 1;
  static constexpr std::uint64_t max_granules = (std::uint64_t{1} << (2 * half_bits)) - 1;
  static_assert(max_block_bytes <= max_granules * granule_bytes);

  // A plain tree's words hold only the address.
  static Block* unpack(std::uint64_t word) noexcept {
    return reinterpret_cast<Block*>(Order::by_address ? word & address_mask : word);
  }

  static std::uint64_t priority(const Block* t) noexcept {
    return mix(t->address() + t->block_bytes());
  }

  // A slot is a word that holds a link: the root, or a link word of a node, whose other bits must
  // be kept.
  static void set(std::uint64_t* slot, const Block* child) noexcept {
    *slot = (Order::by_address ? *slot & ~address_mask : 0) | address_of(child);
  }
  static std::uint64_t* slot_towards(Block* t, const Block* block) noexcept {
    return &t->link_word(Order::before(*block, *t) ? 0 : 1);
  }

  // The size of a block as augmented nodes store it.
  static std::size_t told_bytes(const Block* t) noexcept {
    const std::size_t bytes = t->block_bytes();
    return bytes < max_granules * granule_bytes ? bytes : max_granules * granule_bytes;
  }
  static void set_largest(Block* t, std::size_t bytes) noexcept {
    const std::uint64_t granules = bytes / granule_bytes;
    t->link_word(0) = (t->link_word(0) & address_mask) | (granules >> half_bits << address_bits);
    t->link_word(1) = (t->link_word(1) & address_mask) | (granules << address_bits);
  }

  // To be called when `block` is added below `t`.
  static void raise(Block* t, const Block* block) noexcept {
    if constexpr (Order::by_address) {
      if (largest(t) < told_bytes(block)) set_largest(t, told_bytes(block));
    }
  }

  // Recomputes the largest block of the subtree of `t` from its children; true if it changes.
  static bool refresh(Block* t) noexcept {
    std::size_t most = told_bytes(t);
    for (const Block* child : {left(t), right(t)}) {
      if (child != nullptr && largest(child) > most) most = largest(child);
    }
    if (most == largest(t)) return false;
    set_largest(t, most);
    return true;
  }

  // The nodes on a path down the tree, to be refreshed upwards once all changes below are done.
  // Empty where nodes do not know their subtrees.
  class Path {
   public:
    void add(Block* t) noexcept {
      if constexpr (Order::by_address) {
        require(length_ < max_depth, "a free tree is deeper than chance allows", t);
        nodes_[length_++] = t;
      }
    }
    // Refreshes from the last node up to the first that does not change; then those above do not
    // either.
    void refresh_upwards() noexcept {
      if constexpr (Order::by_address) {
        while (length_ > 0 && refresh(nodes_[length_ - 1])) --length_;
      }
    }
    // Refreshes all of them: each has lost a part of its subtree.
    void refresh_all() noexcept {
      if constexpr (Order::by_address) {
        while (length_ > 0) refresh(nodes_[--length_]);
      }
    }

   private:
    // A treap of 2^32 blocks is deeper than this with a probability below 2^-100 (Seidel and
    // Aragon, theorem 4.8).
    static constexpr unsigned max_depth = Order::by_address ? 256 : 1;
    unsigned length_ = 0;
    Block* nodes_[max_depth];
  };

  // Divides subtree `t` at `block`: the blocks before it become its left subtree, those after it
  // the right one.
  static void split_below(Block* t, Block* block) noexcept {
    block->link_word(0) = 0;
    block->link_word(1) = 0;
    std::uint64_t* low =
        &block->link_word(0);  // where to link the next part that comes before the block
    std::uint64_t* high = &block->link_word(1);  // where to link the next part that comes after it
    Path path;
    path.add(block);
    while (t != nullptr) {
      path.add(t);
      const bool is_sparse = Order::before(*t, *block);
      std::uint64_t*& end = is_sparse ? low : high;
      set(end, t);
      end = &t->link_word(is_sparse ? 1 : 0);
      t = unpack(*end);
    }
    set(low, nullptr);
    set(high, nullptr);
    path.refresh_all();
  }

  // Merges two trees into `slot`; every block of `low` comes before every block of `high`.
  static void merge_into(std::uint64_t* slot, Block* low, Block* high) noexcept {
    while (low != nullptr && high != nullptr) {
      Block*& upper = priority(low) > priority(high) ? low : high;
      if constexpr (Order::by_address) {
        const std::size_t other = largest(upper == low ? high : low);
        if (largest(upper) < other) set_largest(upper, other);
      }
      set(slot, upper);
      slot = &upper->link_word(upper == low ? 1 : 0);
      upper = unpack(*slot);
    }
    set(slot, low != nullptr ? low : high);
  }

  static bool valid_below(const Block* t, const Block* after, const Block* before,
                          std::size_t& blocks, std::size_t& bytes) noexcept {
    if (t == nullptr) return true;
    ++blocks;
    bytes += t->block_bytes();
    if (after != nullptr && !Order::before(*after, *t)) return false;
    if (before != nullptr && !Order::before(*t, *before)) return false;
    std::size_t most = told_bytes(t);
    for (const Block* child : {left(t), right(t)}) {
      if (child == nullptr) continue;
      if (priority(child) > priority(t)) return false;
      if constexpr (Order::by_address) most = largest(child) > most ? largest(child) : most;
    }
    if constexpr (Order::by_address) {
      if (largest(t) != most) return false;
    }
    return valid_below(left(t), after, t, blocks, bytes) &&
           valid_below(right(t), t, before, blocks, bytes);
  }

  std::uint64_t root_ = 0;  // a link, packed like the others
  Counter blocks_;          // written by the holder of the heap, read by any thread
  Counter bytes_;
};

}  // namespace ts::classic
