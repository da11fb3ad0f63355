// Free blocks that wait for nodes: a stack of blocks that a lock-free heap cannot describe in its
// tree, because there was no memory for a node. Each is tagged with its size and linked through its
// first word. The heap decides when there are nodes again.
//
// A thread pushes a chain of its own blocks, or takes the whole stack, so there is no ABA. The
// memory of the blocks leaves a thread by the push (release) and reaches the next one by take_all
// (acquire).
#pragma once

#include "classic/block.h"

namespace ts::classic {

class WaitingBlocks {
 public:
  constexpr WaitingBlocks() = default;

  bool is_empty() const noexcept { return newest_.load(std::memory_order_relaxed) == nullptr; }

  // Pushes a chain of the caller's blocks, from `first` to `last`.
  void push(Block* first, Block* last) noexcept {
    Block* head = newest_.load(std::memory_order_relaxed);
    // release: pairs with the acquire in take_all()
    do {
      link(last, head);
    } while (!newest_.compare_exchange_weak(head, first, std::memory_order_release,
                                            std::memory_order_relaxed));
  }

  // Empties the stack; the chain is the caller's.
  Block* take_all() noexcept { return newest_.exchange(nullptr, std::memory_order_acquire); }

  // For a walk while no thread is inside.
  const Block* newest() const noexcept { return newest_.load(std::memory_order_acquire); }

  static void link(Block* block, const Block* next) noexcept {
    block->link_word(0) = address_of(next);
  }
  static Block* next_of(const Block* block) noexcept {
    return reinterpret_cast<Block*>(block->link_word(0));
  }

 private:
  std::atomic<Block*> newest_{nullptr};
};

}  // namespace ts::classic
