// A contiguous piece of a heap, as its source got it from the system.
//
//   Chunk (24 bytes)    blocks, contiguous                     fence (8 bytes)
//   +-----------------+--------------------------------------+-----+
//   | prev next bytes | tag payload | tag payload | ...      | tag |
//   +-----------------+--------------------------------------+-----+
//   ^ aligned to 16                                                ^ end(), a multiple of 16
#pragma once

#include "classic/block.h"

namespace ts::classic {

// The list pointers and `bytes` belong to the source, under its lock.
struct Chunk {
  Chunk* previous;
  Chunk* next;
  std::size_t bytes_and_origin;  // size of the whole chunk; bit 0: from the break (or the buffer's
                                 // break), else mapped

  static constexpr std::size_t overhead_bytes = 24 + tag_bytes;  // this header and the fence
  static constexpr std::size_t min_bytes = overhead_bytes + min_block_bytes;

  std::size_t bytes() const noexcept { return bytes_and_origin & ~std::size_t{1}; }
  bool from_break() const noexcept { return (bytes_and_origin & 1U) != 0; }
  std::byte* begin() noexcept { return reinterpret_cast<std::byte*>(this); }
  std::byte* end() noexcept { return begin() + bytes(); }
  Block* first_block() noexcept { return Block::at(begin() + sizeof(Chunk)); }
  Block* fence() noexcept { return Block::at(end() - tag_bytes); }
  // The chunk that begins with this block.
  static Chunk* of_first_block(Block* block) noexcept {
    return reinterpret_cast<Chunk*>(block->begin() - sizeof(Chunk));
  }
};
static_assert(sizeof(Chunk) == 24);

}  // namespace ts::classic
