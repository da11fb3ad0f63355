// A large block: a mapping of its own between inaccessible ranges, all of it reserved addresses.
//
//   reserved_begin | inaccessible | begin: block | canary, zeros | inaccessible |
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bits.h"
#include "base/fault.h"
#include "base/heap_like.h"
#include "os/os.h"
#include "secure/slab.h"
#include "secure/space.h"
#include "secure/zero.h"

namespace ts::secure {

enum class LargeState : std::uint8_t {
  used,
  leaving,  // freed, or about to move: one thread takes its pages away, without the lock
  waiting,  // in the quarantine: addresses without memory
  idle,     // the same, out of the quarantine: for a new block
  stuck,    // out of both: the system refused to take it back
};

// Invariants:
//   sizes     `bytes` is what a request for `asked` gets; `begin` is at a page
//   reserved  at least a page before the block, and one behind its last page
//   memory    in use, and until a program writes there: the canary and zeros stand behind the
//             block, up to the end of its last page
//   canary    as a slab's
struct LargeBlock {
  std::uintptr_t begin;           // 0: no block
  std::size_t bytes;              // usable by the program
  std::size_t asked;              // requested by the program
  std::uintptr_t reserved_begin;  // its addresses, with those around it
  std::size_t reserved_bytes;
  std::uint64_t canary;
  LargeState state;
};

// Checks all of them but `memory`.
Fault find_block_fault(const LargeBlock& block) noexcept;

// Usable bytes of a block for a request.
constexpr std::size_t usable_for(std::size_t bytes) noexcept {
  return align_up(bytes == 0 ? 1 : bytes, min_alignment);
}

inline std::size_t pages_of(const LargeBlock& block) noexcept {
  return align_up(block.bytes, page_bytes());
}
inline std::byte* memory_of(const LargeBlock& block) noexcept {
  return reinterpret_cast<std::byte*>(block.begin);
}

// Behind the block, up to the end of its last page: a canary and zeros. A block that ends with its
// page has none, since the inaccessible range follows.
inline void write_tail(const LargeBlock& block) noexcept {
  if (block.bytes % page_bytes() != 0)
    std::memcpy(memory_of(block) + block.bytes, &block.canary, canary_bytes);
}
inline bool is_tail_intact(const LargeBlock& block) noexcept {
  const std::size_t tail = pages_of(block) - block.bytes;
  if (tail == 0) return true;
  std::uint64_t found = 0;
  const std::byte* const end = memory_of(block) + block.bytes;
  std::memcpy(&found, end, canary_bytes);
  return found == block.canary && is_zero(end + canary_bytes, tail - canary_bytes);
}

// Gives back the addresses of a block that is not in the table, as far as the system takes them.
inline void unreserve(const LargeBlock& block) noexcept {
  os::unmap(reinterpret_cast<void*>(block.reserved_begin), block.reserved_bytes);
}

}  // namespace ts::secure
