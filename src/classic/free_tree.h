// The free blocks of one heap, kept inside those blocks: a treap (Seidel and Aragon, "Randomized
// search trees", 1996) whose priority is a hash of the address, so that it needs no stored balance
// and no randomness; its expected depth is about 1.4 log2 n for any set of blocks that was not
// chosen against the hash. It refuses to know which block is the right one: a fit walks it (fit.h),
// an Order sorts it.
//
// Two links and, if the order is augmented, the largest block size of the subtree must fit into 16
// bytes, so that the least block stays at 32 bytes for every fit and fits can be compared like with
// like. Addresses below 2^47 in units of 16 need 43 bits; the 21 spare bits of each of the two
// words hold one half of a 42-bit size in units of 16:
//
//   link_word(0):  [ largest, high 21 bits ][ left  / 16, 43 bits ]
//   link_word(1):  [ largest, low 21 bits  ][ right / 16, 43 bits ]
//
// Not thread-safe: guarded by the lock, or by the one thread, of its heap. Searching only reads.
#pragma once

#include <concepts>

#include "base/counter.h"
#include "classic/block.h"

namespace ts::classic {

template <class O>
concept TreeOrder = requires(const Block& a, const Block& b) {
  { O::before(a, b) } -> std::same_as<bool>;  // strict and total: addresses break ties
  {
    O::augmented
  } -> std::convertible_to<bool>;  // does each node know the largest block of its subtree?
};

template <TreeOrder Order>
class FreeTree {
 public:
  constexpr FreeTree() = default;

  std::size_t blocks() const noexcept { return blocks_; }
  std::size_t bytes() const noexcept { return bytes_; }

  // Searching, for the fits: the top of the tree, and from a node downwards.
  Block* root() const noexcept { return root_; }
  static Block* left(const Block* t) noexcept { return unpack(t->link_word(0)); }
  static Block* right(const Block* t) noexcept { return unpack(t->link_word(1)); }
  static std::size_t largest(const Block* t) noexcept
    requires(Order::augmented)
  {
    return ((t->link_word(0) >> address_bits << spare_bits) | (t->link_word(1) >> address_bits)) *
           granule_bytes;
  }

  // Adds a free block; its tag gives its size, which stays as it is until the block is erased.
  void insert(Block* block) noexcept {
    ++blocks_;
    bytes_ += block->block_bytes();
    root_ = insert_below(root_, block, priority(block));
  }

  // Takes out a block that is in the tree.
  void erase(Block* block) noexcept {
    --blocks_;
    bytes_ -= block->block_bytes();
    root_ = erase_below(root_, block);
  }

  // Order, heap property, augmentation and counts all hold.
  bool is_valid() const noexcept {
    std::size_t blocks = 0;
    std::size_t bytes = 0;
    return valid_below(root_, nullptr, nullptr, blocks, bytes) && blocks == blocks_ &&
           bytes == bytes_;
  }

 private:
  static constexpr int address_bits = 43;
  static constexpr int spare_bits = 64 - address_bits;
  static constexpr std::uint64_t address_mask = (std::uint64_t{1} << address_bits) - 1;
  static_assert(address_limit / granule_bytes == std::uint64_t{1} << address_bits);
  static_assert(max_block_bytes / granule_bytes <= std::uint64_t{1} << (2 * spare_bits));

  // Blocks lie at 8 mod 16; packing drops those 8 bytes, unpacking adds them. Zero is null.
  static Block* unpack(std::uint64_t word) noexcept {
    const std::uint64_t granule = word & address_mask;
    return granule == 0 ? nullptr : reinterpret_cast<Block*>(granule * granule_bytes + tag_bytes);
  }
  static void set_child(Block* t, int side, const Block* child) noexcept {
    std::uint64_t& word = t->link_word(side);
    word = (word & ~address_mask) | (address_of(child) / granule_bytes);
  }

  static std::uint64_t priority(const Block* t) noexcept { return mix(t->address()); }

  // Recomputes what `t` says of its subtree from what its children say of theirs.
  static void refresh(Block* t) noexcept {
    if constexpr (Order::augmented) {
      std::size_t most = t->block_bytes();
      for (const Block* child : {left(t), right(t)}) {
        if (child != nullptr && largest(child) > most) most = largest(child);
      }
      const std::uint64_t granules = most / granule_bytes;
      t->link_word(0) = (t->link_word(0) & address_mask) | (granules >> spare_bits << address_bits);
      t->link_word(1) = (t->link_word(1) & address_mask) | (granules << address_bits);
    }
  }

  // The recursions below are as deep as the tree; splitting and merging take an expected two steps
  // of it.

  static Block* insert_below(Block* t, Block* block, std::uint64_t block_priority) noexcept {
    if (t == nullptr || priority(t) < block_priority) {
      const Halves halves = split(t, block);
      block->link_word(0) = 0;
      block->link_word(1) = 0;
      set_child(block, 0, halves.low);
      set_child(block, 1, halves.high);
      refresh(block);
      return block;
    }
    const int side = Order::before(*block, *t) ? 0 : 1;
    set_child(t, side, insert_below(side == 0 ? left(t) : right(t), block, block_priority));
    refresh(t);
    return t;
  }

  struct Halves {
    Block* low;
    Block* high;
  };

  // Divides a subtree into the blocks before `key` and those after it.
  static Halves split(Block* t, const Block* key) noexcept {
    if (t == nullptr) return {nullptr, nullptr};
    if (Order::before(*t, *key)) {
      const Halves halves = split(right(t), key);
      set_child(t, 1, halves.low);
      refresh(t);
      return {t, halves.high};
    }
    const Halves halves = split(left(t), key);
    set_child(t, 0, halves.high);
    refresh(t);
    return {halves.low, t};
  }

  static Block* erase_below(Block* t, const Block* block) noexcept {
    check(t != nullptr, "free block missing from its tree", block);
    if (t == block) return merge(left(t), right(t));
    const int side = Order::before(*block, *t) ? 0 : 1;
    set_child(t, side, erase_below(side == 0 ? left(t) : right(t), block));
    refresh(t);
    return t;
  }

  // Joins two trees of which every block of `low` comes before every block of `high`.
  static Block* merge(Block* low, Block* high) noexcept {
    if (low == nullptr) return high;
    if (high == nullptr) return low;
    if (priority(low) > priority(high)) {
      set_child(low, 1, merge(right(low), high));
      refresh(low);
      return low;
    }
    set_child(high, 0, merge(low, left(high)));
    refresh(high);
    return high;
  }

  static bool valid_below(const Block* t, const Block* after, const Block* before,
                          std::size_t& blocks, std::size_t& bytes) noexcept {
    if (t == nullptr) return true;
    ++blocks;
    bytes += t->block_bytes();
    if (after != nullptr && !Order::before(*after, *t)) return false;
    if (before != nullptr && !Order::before(*t, *before)) return false;
    std::size_t most = t->block_bytes();
    for (const Block* child : {left(t), right(t)}) {
      if (child == nullptr) continue;
      if (priority(child) > priority(t)) return false;
      if constexpr (Order::augmented) most = largest(child) > most ? largest(child) : most;
    }
    if constexpr (Order::augmented) {
      if (largest(t) != most) return false;
    }
    return valid_below(left(t), after, t, blocks, bytes) &&
           valid_below(right(t), t, before, blocks, bytes);
  }

  Block* root_ = nullptr;
  Counter blocks_;  // written by whoever holds the heap, read by anyone
  Counter bytes_;
};

}  // namespace ts::classic
