// Blocks that are too large for a slab: each in a mapping of its own, between inaccessible ranges
// of random length. What is freed loses its memory at once, and its addresses stay inaccessible, in
// a quarantine, before the system gets them back.
//
// One lock for the table and the quarantine; the calls that take long, of the system, are made
// without it, for a block that is marked as `leaving`, which no other thread then touches.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bits.h"
#include "base/heap_like.h"
#include "os/mutex.h"
#include "secure/findings.h"
#include "secure/large_table.h"
#include "secure/random.h"

namespace ts::secure {

class LargeBlocks {
 public:
  struct Totals {
    std::size_t bytes = 0;  // whole pages
    std::size_t blocks = 0;
    std::size_t maps = 0;
  };

  // Zero-filled; null if the system refuses. Neither number is larger than address_limit.
  std::byte* allocate(std::size_t bytes, std::size_t alignment) noexcept;
  // As ClassHeap::release.
  Finding release(const void* p, bool ignores_canary) noexcept;
  // Whether a block in use begins there; how many bytes it has, and was asked for, 0 if none does.
  struct Sizes {
    std::size_t usable = 0;
    std::size_t asked = 0;
  };
  Finding look_at(const void* p, Sizes& sizes) noexcept;
  // What a program may use that asks for so many.
  static constexpr std::size_t usable_for(std::size_t bytes) noexcept {
    return align_up(bytes == 0 ? 1 : bytes, min_alignment);
  }

  // In place: to fewer pages, whose memory goes back, or into what is reserved behind the block.
  bool resize(const void* p, std::size_t bytes) noexcept;
  // To other addresses, by moving the pages; null, with nothing changed, if copying is better.
  std::byte* move(const void* p, std::size_t bytes) noexcept;

  // Gives all addresses of the quarantine back to the system.
  void end_quarantine() noexcept;
  // Tries again what the system refused to take back; true if it took something.
  bool give_back_stuck() noexcept;

  const std::byte* find_overflow() noexcept;
  bool walk(BlockVisitor visit, void* argument) noexcept;
  Totals totals() noexcept;
  bool is_valid() noexcept;

  void fork_prepare() noexcept { lock_.lock_for_fork(); }
  void fork_parent() noexcept { lock_.unlock_after_fork(); }
  void fork_child() noexcept TS_NO_ANALYSIS;

 private:
  static constexpr unsigned max_waiting_blocks = 64;

  bool reserve(std::size_t bytes, std::size_t alignment, std::size_t room,
               LargeBlock& block) noexcept;
  LargeBlock* find_used(const void* p, Finding& finding) noexcept TS_REQUIRES(lock_);
  void put_away(std::uintptr_t begin) noexcept;
  void evict(unsigned index) noexcept TS_REQUIRES(lock_);

  Mutex lock_;
  LargeTable table_ TS_GUARDED_BY(lock_);
  Random random_ TS_GUARDED_BY(lock_);
  std::uintptr_t waiting_[max_waiting_blocks] TS_GUARDED_BY(lock_);
  unsigned waiting_count_ TS_GUARDED_BY(lock_);
  std::size_t waiting_bytes_ TS_GUARDED_BY(lock_);
  std::size_t maps_ TS_GUARDED_BY(lock_);
};

}  // namespace ts::secure
