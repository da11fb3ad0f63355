// A large block has a mapping of its own between inaccessible ranges, all of it reserved address
// space:
//
//   reserved_begin | inaccessible | begin: block | tail, to the end of the page | inaccessible |
//
// When the process runs short of mappings, it is part of a group instead, and the group is one
// mapping (large_groups.cpp):
//
//   reserved_begin, begin: block | tail, at least a word | untouched | next block of the group
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
  leaving,  // freed, moving or shrinking: one thread returns its pages, without the lock
  waiting,  // in the quarantine: addresses without memory
  idle,     // past the quarantine, still without memory: available for a new block
  stuck,    // past the quarantine, but the kernel refused to unmap it
  grouped,  // past the quarantine, without memory: available for a new block of its group
};

// Invariants:
//   sizes     `begin` is page-aligned
//   reserved  at least a page before the block and one after its last page; for a block of a group,
//             the block itself
//   memory    while in use, until the program overwrites it: the tail is as described in tail.h
//   canary    as in a slab
struct LargeBlock {
  std::uintptr_t begin;           // 0: no block
  std::size_t bytes;              // requested by the program, and usable
  std::uintptr_t reserved_begin;  // start of its reserved range, guards included
  std::size_t reserved_bytes;
  std::uint64_t canary;
  LargeState state;
  bool is_in_group;
  bool has_remains;  // followed by pages that the kernel refused to take, with their contents
};

// Checks all of them except `memory`.
Fault find_block_fault(const LargeBlock& block) noexcept;

// Bytes of the whole pages that a request needs, at least one page.
inline std::size_t pages_for(std::size_t bytes) noexcept {
  return align_up(bytes == 0 ? 1 : bytes, page_bytes());
}
// Includes the tail if no inaccessible page follows.
inline std::size_t pages_of(const LargeBlock& block) noexcept {
  return pages_for(block.is_in_group ? block.bytes + canary_bytes : block.bytes);
}
inline std::byte* memory_of(const LargeBlock& block) noexcept {
  return reinterpret_cast<std::byte*>(block.begin);
}

// A block that ends at a page boundary needs no tail: the inaccessible range follows.
inline void write_tail(const LargeBlock& block) noexcept {
  write_large_tail(memory_of(block) + block.bytes, pages_of(block) - block.bytes, block.canary);
}
inline bool is_tail_intact(const LargeBlock& block) noexcept {
  return is_large_tail_intact(memory_of(block) + block.bytes, pages_of(block) - block.bytes,
                              block.canary);
}

// Unmaps the addresses of a block that is not in the table, as far as the kernel allows.
inline void unreserve(const LargeBlock& block) noexcept {
  os::unmap_unused(reinterpret_cast<void*>(block.reserved_begin), block.reserved_bytes);
}

}  // namespace ts::secure
