// Blocks of cache bins: each has the link of a singly linked list, and a key that says it is free.
#pragma once

#include "base/atomic.h"
#include "base/bits.h"
#include "base/platform.h"

namespace ts::engine {

// Invariant: a block on a list has its key, key_of(its address); a block in use does not. So free()
// detects a block that is already free. malloc removes the key: it detects a list that leads to
// memory which is not a free block, or to a block that was overwritten or is on a list twice.
//
// A free block that is back in its slab may or may not have its key: in a burst of frees its line
// is cold, and free() does not touch it. A slab with such blocks has keyless_bit in its map
// entries, and free() checks the block's bit there (SlabUse), which is exact for every block that
// is not in a bin. The free blocks in a slab:
//
//   keyless_bit  has_keys
//   no            no         there are none, or none was carved
//   no            yes        all have their keys
//   yes           no         none has a key
//   yes           yes        some have keys, some do not
struct Block {
  Plain<Block*> next;
  Plain<std::uintptr_t> key;
};

// A value that no program computes, and not a pointer: it lies far above the engine's addresses.
inline std::uintptr_t key_of(const void* p) noexcept { return 8 * address_of(p) + 0x5bd1'e995; }

inline bool has_key(const void* p) noexcept {
  return static_cast<const Block*>(p)->key == key_of(p);
}
inline Block* set_key(void* p) noexcept {
  auto* const block = static_cast<Block*>(p);
  block->key = key_of(p);
  return block;
}
inline Block* clear_key(Block* block) noexcept {
  block->key = 0;
  return block;
}
// Removes a block's key. False if it had none; then put_back_key() restores its second word.
// Release: a block leaves its list before it loses its key, also for a signal handler that leaves
// malloc by longjmp, and for the child of a fork.
inline bool take_key(Block* block) noexcept {
  return sub_release(block->key, of_one_access(key_of(block))) == 0;  // saves one instruction
}
inline void put_back_key(Block* block) noexcept { block->key += key_of(block); }

// Pushes a block onto a list. `first` is the list's first block, if the caller has it at hand.
// Release: the child of a fork may inherit the list of a thread that it lacks, interrupted between
// any two stores (base/busy_mark.h). The block is then on the list with its link, or not on it at
// all.
inline void push_front(Plain<Block*>& list, Block* block, Block* first) noexcept {
  block->next = first;
  store_release(list, block);
}
inline void push_front(Plain<Block*>& list, Block* block) noexcept {
  push_front(list, block, list);
}

}  // namespace ts::engine
