// Free blocks in singly linked lists; the link is all that a free block holds.
#pragma once

#include "base/atomic.h"

namespace ts::engine {

struct Block {
  Plain<Block*> next;
};

// Pushes a block onto a list. `first` is the list's first block where the caller has it at hand.
// Release: the child of a fork may inherit a list of a thread that it lacks, cut off between any
// two stores (base/busy_mark.h). The block is then on the list with its link, or not at all.
inline void push_front(Plain<Block*>& list, Block* block, Block* first) noexcept {
  block->next = first;
  store_release(list, block);
}
inline void push_front(Plain<Block*>& list, Block* block) noexcept {
  push_front(list, block, list);
}

}  // namespace ts::engine
