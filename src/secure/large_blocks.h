// Blocks too large for a slab: each has a mapping of its own between inaccessible ranges of random
// length. A freed block loses its memory at once. Its addresses stay inaccessible, first in a
// quarantine and then idle, until a new block reuses them or they are unmapped.
//
//   allocate -> reserve: an idle range, or a new one -> memory -> table
//   release  -> leaving -> put_away: memory is returned -> quarantine -> evict -> idle, or unmapped
//
// Reusing a range saves two of four system calls: mapping and unmapping it. When mappings run short
// (mappings.h), new blocks come in groups:
//
//   allocate -> part of a group: a freed one, or the next one -> table
//   release  -> leaving -> put_away: pages are discarded -> quarantine -> evict -> grouped
//
// One lock protects the table and the quarantine. Long system calls, and those that other libraries
// may intercept (os.h), are made without it, on a block in state leaving, which no other thread
// touches. The code is in large_blocks.cpp, large_quarantine.cpp, large_groups.cpp,
// large_resize.cpp, large_inspect.cpp and large_invariants.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/fault.h"
#include "base/heap_like.h"
#include "os/mutex.h"
#include "secure/findings.h"
#include "secure/large_table.h"
#include "secure/random.h"

namespace ts::secure {

// Invariants whenever the lock is free:
//   blocks      those of large_block.h; no two blocks share a reserved address
//   quarantine  waiting_ holds each block in state waiting once: waiting_count_ of them, with
//               waiting_bytes_ reserved bytes
//   groups      the free parts of each length form a list, which holds each block in state grouped
//               once
//   idle        idle_ holds each block in state idle once, with its reserved bytes; none of them is
//               accessible
// At rest, except in the child of a fork that cut a call off: no block is leaving, and no promised
// place is open.
class LargeBlocks {
 public:
  struct Totals {
    std::size_t bytes = 0;  // whole pages
    std::size_t blocks = 0;
    std::size_t maps = 0;  // how often new address space was requested
  };

  // Zero-filled; null if the kernel refuses. Neither argument may exceed address_limit.
  std::byte* allocate(std::size_t bytes, std::size_t alignment) noexcept;
  // As ClassHeap::release.
  Finding release(const void* p, bool ignores_damage) noexcept;
  // Checks whether a block in use begins at `p`, and sets `bytes` to its size, or 0.
  Finding look_at(const void* p, std::size_t& bytes) noexcept;

  // In place: shrinks and returns the pages, or grows into the space reserved after the block.
  bool resize(const void* p, std::size_t bytes) noexcept;
  // Moves the block's pages to other addresses; null, with nothing changed, if copying is better.
  std::byte* move(const void* p, std::size_t bytes) noexcept;

  // Unmaps the quarantine and the idle ranges.
  void end_quarantine() noexcept;
  // Retries to unmap what the kernel refused; true if any of it was unmapped.
  bool give_back_stuck() noexcept;

  const std::byte* find_overflow() noexcept;
  // For process exit: returns nothing if the lock is held.
  Left find_left() noexcept;
  bool walk(BlockVisitor visit, void* argument) noexcept;
  Totals totals() noexcept;
  // Checks the invariants above except the contents of memory; `is_at_rest` adds those that hold
  // only while no other thread is in the heap. Takes time quadratic in the number of blocks.
  Fault find_fault(bool is_at_rest) noexcept;

  void fork_prepare() noexcept { lock_.lock_for_fork(); }
  void fork_parent() noexcept { lock_.unlock_after_fork(); }
  void fork_child() noexcept TS_NO_ANALYSIS;

 private:
  static constexpr unsigned max_waiting_blocks = 64;
  static constexpr unsigned max_idle_blocks = 16;
  struct IdleRange {
    std::uintptr_t begin;  // of the former block
    std::size_t bytes;
  };

  // Groups, by the length of their parts.
  struct Group {
    std::uintptr_t free;  // list of free blocks, linked through their size field; 0: none
    std::uintptr_t next;  // first part of the newest group that was never a block
    std::uintptr_t end;   // end of those parts
    std::size_t parts;    // parts of this length made so far
  };
  static constexpr unsigned first_group_width = 17;
  static constexpr unsigned group_lengths = 4 * (48 - first_group_width);
  static unsigned group_of(std::size_t bytes) noexcept;
  static std::size_t part_bytes(unsigned group) noexcept;
  std::byte* allocate_alone(std::size_t bytes, std::size_t alignment) noexcept;
  std::byte* allocate_in_group(std::size_t bytes, std::size_t alignment) noexcept;
  bool take_part(unsigned group, LargeBlock& block, bool& is_fresh) noexcept TS_REQUIRES(lock_);
  bool add_group(unsigned group) noexcept TS_REQUIRES(lock_);
  Fault find_group_fault() noexcept TS_REQUIRES(lock_);
  void drop_group(unsigned group) noexcept TS_REQUIRES(lock_);
  void insert(const LargeBlock& block) noexcept TS_REQUIRES(lock_);
  void erase(LargeBlock& block) noexcept TS_REQUIRES(lock_);

  bool reserve(std::size_t bytes, std::size_t alignment, std::size_t room,
               LargeBlock& block) noexcept;
  LargeBlock* find_used(const void* p, Finding& finding) noexcept TS_REQUIRES(lock_);
  void put_away(const LargeBlock& block) noexcept;
  void evict(unsigned index) noexcept TS_REQUIRES(lock_);
  bool take_idle(std::size_t bytes, LargeBlock& block) noexcept TS_REQUIRES(lock_);
  void give_back_idle(unsigned index) noexcept TS_REQUIRES(lock_);
  void give_back(std::uintptr_t begin) noexcept TS_REQUIRES(lock_);

  Fault find_overlap(const LargeBlock& block) noexcept TS_REQUIRES(lock_);
  Fault find_idle_fault() noexcept TS_REQUIRES(lock_);
  Fault find_table_fault() noexcept TS_REQUIRES(lock_);
  // `changed`: the block that the slow path added or changed, if it is still in the table.
  void check_slow_path(std::uintptr_t changed) noexcept TS_REQUIRES(lock_);

  Mutex lock_;
  LargeTable table_ TS_GUARDED_BY(lock_);
  Random random_ TS_GUARDED_BY(lock_);
  std::uintptr_t waiting_[max_waiting_blocks] TS_GUARDED_BY(lock_);
  unsigned waiting_count_ TS_GUARDED_BY(lock_);
  std::size_t waiting_bytes_ TS_GUARDED_BY(lock_);
  IdleRange idle_[max_idle_blocks] TS_GUARDED_BY(lock_);
  unsigned idle_count_ TS_GUARDED_BY(lock_);
  Group groups_[group_lengths] TS_GUARDED_BY(lock_);
  std::size_t maps_ TS_GUARDED_BY(lock_);
};

}  // namespace ts::secure
