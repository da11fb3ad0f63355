// Blocks of cache bins: each has a link of a singly linked list, and a mark that it is free.
#pragma once

#include "base/atomic.h"
#include "base/bits.h"
#include "base/platform.h"

namespace ts::engine {

// Invariant: a block on a list has its mark, mark_of(its address); a block in use has it not. So a
// free of the block sees that it is free already. malloc takes the mark off: it sees a list that
// leads to memory that is no free block, or to a block that was written to or is on a list twice.
//
// A free block that is back in its slab may have a mark or not: in a burst of frees its line is cold,
// and free leaves it alone. A slab with such blocks has unmarked_bit in its map entries, and free
// checks the block's bit there (FreeBits), which is exact for every block that is not in a bin. Of the
// free blocks in a slab:
//
//   unmarked_bit  has_marks
//   no            no         none is there, or none was carved
//   no            yes        each has its mark
//   yes           no         none has a mark
//   yes           yes        some have marks, some do not
struct Block {
  Plain<Block*> next;
  Plain<std::uintptr_t> mark;
};

// No number that a program computes, and no pointer either, so far behind the engine's addresses.
inline std::uintptr_t mark_of(const void* p) noexcept { return 8 * address_of(p) + 0x5bd1'e995; }

inline bool is_marked(const void* p) noexcept {
  return static_cast<const Block*>(p)->mark == mark_of(p);
}
inline Block* set_mark(void* p) noexcept {
  auto* const block = static_cast<Block*>(p);
  block->mark = mark_of(p);
  return block;
}
inline Block* clear_mark(Block* block) noexcept {
  block->mark = 0;
  return block;
}
// Takes the mark off a block. False if it had none: then put_back_mark() makes its second word what
// it was. Release: a block is off its list before it is without a mark. That holds also for a
// signal handler that ends malloc by longjmp, and for the child of a fork.
inline bool take_mark(Block* block) noexcept {
  return sub_release(block->mark, of_one_access(mark_of(block))) == 0;  // one instruction less
}
inline void put_back_mark(Block* block) noexcept { block->mark += mark_of(block); }

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
