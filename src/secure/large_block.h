// A large block: a mapping of its own between inaccessible ranges, all of it reserved addresses.
//
//   reserved_begin | inaccessible | begin: block | tail, to the end of the page | inaccessible |
//
// Where mappings are short, a part of a group instead, which is one mapping (large_groups.cpp):
//
//   reserved_begin, begin: block | tail, of a word at least | not touched | the next one of the group
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/fault.h"
#include "os/os.h"
#include "secure/space.h"
#include "secure/tail.h"

namespace ts::secure {

enum class LargeState : std::uint8_t {
  used,
  leaving,  // freed, about to move or to shrink: one thread takes pages away, without the lock
  waiting,  // in the quarantine: addresses without memory
  idle,     // the same, out of the quarantine: for a new block
  stuck,    // out of both: the system refused to take it back
  grouped,  // out of both, without memory: for a new block of its group
};

// Invariants:
//   sizes     `begin` is at a page
//   reserved  at least a page before the block, and one behind its last page; of a group, the block
//   memory    in use, and until a program writes there: the tail is as tail.h says
//   canary    as a slab's
struct LargeBlock {
  std::uintptr_t begin;           // 0: no block
  std::size_t bytes;              // requested by the program, and usable
  std::uintptr_t reserved_begin;  // its addresses, with those around it
  std::size_t reserved_bytes;
  std::uint64_t canary;
  LargeState state;
  bool is_in_group;
  bool has_remains;  // behind it are pages that the system refused to take, with their contents
};

// Checks all of them but `memory`.
Fault find_block_fault(const LargeBlock& block) noexcept;

// The whole pages of a block for a request, at least one.
inline std::size_t pages_for(std::size_t bytes) noexcept {
  return align_up(bytes == 0 ? 1 : bytes, page_bytes());
}
// With a tail, where no inaccessible page follows.
inline std::size_t pages_of(const LargeBlock& block) noexcept {
  return pages_for(block.is_in_group ? block.bytes + canary_bytes : block.bytes);
}
inline std::byte* memory_of(const LargeBlock& block) noexcept {
  return reinterpret_cast<std::byte*>(block.begin);
}

// A block that ends with its page has no tail, since the inaccessible range follows.
inline void write_tail(const LargeBlock& block) noexcept {
  write_large_tail(memory_of(block) + block.bytes, pages_of(block) - block.bytes, block.canary);
}
inline bool is_tail_intact(const LargeBlock& block) noexcept {
  return is_large_tail_intact(memory_of(block) + block.bytes, pages_of(block) - block.bytes,
                              block.canary);
}

// Gives back the addresses of a block that is not in the table, as far as the system takes them.
inline void unreserve(const LargeBlock& block) noexcept {
  os::unmap_unused(reinterpret_cast<void*>(block.reserved_begin), block.reserved_bytes);
}

}  // namespace ts::secure
