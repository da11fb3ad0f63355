// The blocks in use, and which memory was allocated before: one word and one bit for each 8 bytes
// of address space that has contained blocks, in the tracker's own mappings.
//
// There are no locks. Each word is exchanged as a whole, so the table is right at every moment,
// even for a child forked in between.
#pragma once

#include <cstdint>

namespace ts {

struct Block {
  std::uint64_t bytes = 0;
  std::uint32_t thread = 0;  // that allocated it; 0: there is no such block
  bool exists() const { return thread != 0; }
};

inline constexpr std::uint64_t max_block_bytes = (std::uint64_t{1} << 40) - 1;  // a cap
inline constexpr std::uint32_t max_threads = (1U << 24) - 1;  // later ones share this number

// Enters a block and returns the previous one. `is_entered` is false if there is no memory for it.
Block enter_block(const void* address, Block block, bool& is_entered);

// Removes a block; returns a nonexistent one if it is unknown.
Block take_block(const void* address);

// Notes that bytes `from` to `to` of a block are allocated, and returns how many of them had been
// before, at a resolution of 8 bytes. Blocks of more than 8 GiB are skipped.
std::uint64_t note_returned_block(const void* block, std::uint64_t from, std::uint64_t to);

}  // namespace ts
