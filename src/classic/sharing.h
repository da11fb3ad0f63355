// The ownership of a block's neighbours: which blocks a heap may change, and how it sets `previous
// free` of a block. A heap has one of two policies.
#pragma once

#include "classic/block.h"

namespace ts::classic {

// Exclusive: all blocks of a chunk belong to one heap, and one thread at a time is in it.
struct Exclusive {
  static constexpr bool forgets = false;  // may a block have lost its `previous free`?
  static bool owns(Tag, std::uint32_t) noexcept { return true; }
  static void set_previous_free(Block* block, bool is, std::uint32_t) noexcept {
    const Tag tag = block->tag();
    block->set_tag(is ? tag.with(Tag::previous_free_flag) : tag.without(Tag::previous_free_flag));
  }
};

// Shared: the neighbour may belong to another heap, whose thread may be changing it right now. Why
// this is sound:
//
// - Only the owner of a free block changes its extent, and two blocks become one only when one heap
//   owns both. So while a heap owns a block and leaves it alone, the next block begins where it
//   ends.
// - `previous free` of a block is set only by the owner of both blocks. When another heap takes the
//   block over (by freeing it), it overwrites the whole tag. The owner's compare-and-swap below and
//   that store hit the same word. Either the swap came first and is overwritten, or it fails
//   because the owner has changed. The tag cannot come back to the expected value in between, since
//   only the thread that is executing the swap writes its own owner number.
// - Relaxed is enough: a tag with a heap's own number was written by that heap itself, or came
//   with an adopted heap, through a mutex.
//
// The price: a block that changes hands loses its `previous free`; that pair merges when the
// earlier one is next freed.
struct Shared {
  static constexpr bool forgets = true;
  static bool owns(Tag tag, std::uint32_t owner) noexcept { return tag.owner() == owner; }
  static void set_previous_free(Block* block, bool is, std::uint32_t owner) noexcept {
    Tag tag = block->tag();
    while (owns(tag, owner) && tag.previous_free() != is) {
      if (block->replace_tag(
              tag, is ? tag.with(Tag::previous_free_flag) : tag.without(Tag::previous_free_flag)))
        return;
    }
  }
};

}  // namespace ts::classic
