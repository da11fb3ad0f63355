// Blocks that are too large for a slab: each in a mapping of its own, between inaccessible ranges
// of random length. A freed block loses its memory at once. Its addresses stay inaccessible: in a
// quarantine, then idle, until a new block or the system gets them.
//
//   allocate -> reserve: an idle range, or a new one -> memory -> table
//   release  -> leaving -> put_away: memory goes -> quarantine -> evict -> idle, or the system
//
// A range that is used again saves two calls of the system of four: its mapping and its unmapping.
// Where mappings are short (mappings.h), new blocks come in groups:
//
//   allocate -> a part of a group: one that was freed, or the next one -> table
//   release  -> leaving -> put_away: pages are given back -> quarantine -> evict -> grouped
//
// One lock for the table and the quarantine. Long calls of the system are made without it, and so
// are those that others see (os.h), for a block in state leaving, which no other thread touches.
// Files: large_blocks.cpp, large_quarantine.cpp, large_groups.cpp, large_resize.cpp,
// large_inspect.cpp, large_invariants.cpp.
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

// Invariants, whenever the lock is free:
//   blocks      those of large_block.h; no two blocks have a reserved address in common
//   quarantine  waiting_ has each block in state waiting once, waiting_count_ of them with
//               waiting_bytes_ reserved bytes
//   groups      the free parts of each length are a list, which has each block in state grouped once
//   idle        idle_ has each block in state idle once, with its reserved bytes; none of those is
//               accessible
// and at rest, but in the child of a fork that cut a call off: no block is leaving, and no promise
// of a place is open.
class LargeBlocks {
 public:
  struct Totals {
    std::size_t bytes = 0;  // whole pages
    std::size_t blocks = 0;
    std::size_t maps = 0;  // times that new addresses were asked for
  };

  // Zero-filled; null if the system refuses. Neither number is larger than address_limit.
  std::byte* allocate(std::size_t bytes, std::size_t alignment) noexcept;
  // As ClassHeap::release.
  Finding release(const void* p, bool ignores_damage) noexcept;
  // Whether a block in use begins there; its size, 0 if none does.
  Finding look_at(const void* p, std::size_t& bytes) noexcept;

  // In place: to fewer pages, whose memory goes back, or into what is reserved behind the block.
  bool resize(const void* p, std::size_t bytes) noexcept;
  // To other addresses, by moving the pages; null, with nothing changed, if copying is better.
  std::byte* move(const void* p, std::size_t bytes) noexcept;

  // Gives all addresses of the quarantine, and the idle ones, back to the system.
  void end_quarantine() noexcept;
  // Tries again to give back what the system refused; true if it took something.
  bool give_back_stuck() noexcept;

  const std::byte* find_overflow() noexcept;
  // At the end of the process; nothing if the lock is held.
  Left find_left() noexcept;
  bool walk(BlockVisitor visit, void* argument) noexcept;
  Totals totals() noexcept;
  // Checks the invariants above but for the contents of memory; those at rest if there is no other
  // thread in the heap. Time: the square of the number of blocks.
  Fault find_fault(bool is_at_rest) noexcept;

  void fork_prepare() noexcept { lock_.lock_for_fork(); }
  void fork_parent() noexcept { lock_.unlock_after_fork(); }
  void fork_child() noexcept TS_NO_ANALYSIS;

 private:
  static constexpr unsigned max_waiting_blocks = 64;
  static constexpr unsigned max_idle_blocks = 16;
  struct IdleRange {
    std::uintptr_t begin;  // of the block that it was
    std::size_t bytes;
  };

  // Groups, by the length of their parts.
  struct Group {
    std::uintptr_t free;  // blocks, each with the next one in place of its size; 0: none
    std::uintptr_t next;  // parts of the last group that never were a block: the first one
    std::uintptr_t end;   // and behind the last one
    std::size_t parts;    // that were made, of this length
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
  // `changed`: the block that the path added or changed, if it is still in the table.
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
