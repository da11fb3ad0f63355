// The blocks in use: address -> (requested size, allocating thread); and which memory has been
// handed out before.
//
// Why it exists: a free tells neither the size nor the thread that allocated. What it refuses to
// do: lock. There is one word for each 8 bytes of address space in which blocks have been. It is
// exchanged as a whole, so a table is right at every moment, also for a child that was forked in
// between.
#pragma once

#include <cstdint>

namespace ts {

struct Block {
  std::uint64_t bytes = 0;
  std::uint32_t thread = 0;  // 0: there is no such block
  bool exists() const { return thread != 0; }
};

inline constexpr std::uint64_t most_block_bytes = (std::uint64_t{1} << 40) - 1;  // larger: cut
inline constexpr std::uint32_t most_threads = (1U << 24) - 1;  // later ones share this number

// Enters a block and returns the one that was there. `is_entered` is false when the ledger has no
// memory for it.
Block enter_block(const void* address, Block block, bool& is_entered);

// Takes a block out; one that does not exist if it is not known.
Block take_block(const void* address);

// Notes that [begin, end) is handed out, and returns how many of its bytes had been before: how much
// memory an allocator hands out again is the plainest figure of its policy. Not closer than 8 bytes.
std::uint64_t note_handed_out(std::uintptr_t begin, std::uintptr_t end);

}  // namespace ts
