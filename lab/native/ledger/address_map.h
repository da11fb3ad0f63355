// From an address to the books' entry about its surroundings: a radix tree of three levels.
//
//   bits  47 .. 34       33 .. 20      19 .. 0
//         root's entry   middle's      within the leaf's MiB
//
// Why it exists: every allocation and every free of every thread asks, and a child may be forked in
// the middle of any of them. A tree whose entries only ever change from null to an address needs no
// lock that a fork could leave held, and is valid at every moment. What it refuses to do: forget.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

namespace ts {

// Memory of the ledger's own: the books must not lie in the heap that they are about, nor lie between
// its mappings more often than they have to. Zeroed, aligned to 16; null when there is none. Any
// thread, at any time; takes no lock, and gives nothing back.
void* own_memory(std::size_t bytes);

inline constexpr unsigned leaf_bits = 20;
inline constexpr std::uintptr_t leaf_span_bytes = std::uintptr_t{1} << leaf_bits;

// Leaf: zero bytes are a valid one.
template <class Leaf>
class AddressMap {
 public:
  using Slot = std::atomic<Leaf*>;

  // Where the leaf's address stands or will stand; null for an address that no program can have, and
  // when there is no memory.
  Slot* slot(std::uintptr_t address) {
    const std::uintptr_t index = address >> leaf_bits;
    if (index >> (2 * level_bits) != 0) return nullptr;
    Middle* const middle = get(root_[index >> level_bits]);
    return middle != nullptr ? &middle->slots[index & level_mask] : nullptr;
  }

  // Null when there is no memory.
  static Leaf* leaf(Slot& slot) { return get(slot); }

  // Null where nothing has been put.
  Leaf* find(std::uintptr_t address) {
    const std::uintptr_t index = address >> leaf_bits;
    if (index >> (2 * level_bits) != 0) return nullptr;
    // acquire, twice: pairs with the release in get(); the zeroed memory is seen
    Middle* const middle = root_[index >> level_bits].load(std::memory_order_acquire);
    if (middle == nullptr) return nullptr;
    return middle->slots[index & level_mask].load(std::memory_order_acquire);
  }

 private:
  static constexpr unsigned level_bits = 14;
  static constexpr std::uintptr_t level_mask = (std::uintptr_t{1} << level_bits) - 1;
  static_assert(2 * level_bits + leaf_bits == 48);

  struct Middle {
    Slot slots[std::size_t{1} << level_bits];
  };

  // The piece that the slot leads to, made now if there is none yet. The loser's piece is lost: it
  // is as rare as two first visits at the same moment, and mostly untouched address space.
  template <class Node>
  static Node* get(std::atomic<Node*>& slot) {
    Node* node = slot.load(std::memory_order_acquire);
    if (node != nullptr) return node;
    auto* const fresh = static_cast<Node*>(own_memory(sizeof(Node)));
    if (fresh == nullptr) return nullptr;
    // release on success: pairs with the acquires; acquire on failure: the winner's zeroes are seen
    return slot.compare_exchange_strong(node, fresh, std::memory_order_release,
                                        std::memory_order_acquire)
               ? fresh
               : node;
  }

  std::atomic<Middle*> root_[std::size_t{1} << level_bits];
};

}  // namespace ts
