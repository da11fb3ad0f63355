// The hardened heap, with the interface of every heap (base/heap_like.h). It detects misuse of
// memory and stays sound after it, at a cost in speed (docs/design/hardened.md). There is one per
// process. Small blocks come from slabs of their size class (class_heap.h); large ones have a
// mapping of their own (large_blocks.h). A block of zero bytes is an address at which any access is
// an error.
#pragma once

#include <cstddef>

#include "base/check.h"
#include "base/fault.h"
#include "base/heap_like.h"

namespace ts::secure {

class Secure {
 public:
  static constexpr bool implements_libc_rules = true;  // libc/libc_rules.h
  static constexpr bool checks_sizes = true;           // likewise

  void* allocate(std::size_t bytes, std::size_t alignment) noexcept;
  // Memory is always zero when it is handed out.
  void* allocate_zeroed(std::size_t bytes) noexcept { return allocate(bytes, min_alignment); }
  void release(void* p) noexcept;
  // Succeeds only if a new request would get the same kind of block: sizes stay exact.
  bool resize(void* p, std::size_t bytes) noexcept;
  void* move(void* p, std::size_t bytes) noexcept;
  static constexpr std::size_t size_to_grow_into(std::size_t, std::size_t bytes) noexcept {
    return bytes;
  }

  // Whether a block in use begins there; reports it if not, or if the block is damaged.
  static bool is_block(const void* p, FoundBy found_by) noexcept;
  // Whether a block in use begins there, damaged or not.
  static bool owns(const void* p) noexcept;
  // Reports a size with which this block cannot have been requested. Invalid pointers are left to
  // free().
  static void check_size(const void* p, std::size_t bytes, std::size_t alignment) noexcept;
  // Reports only sizes larger than the block.
  static void check_most(const void* p, std::size_t bytes) noexcept;
  // Call this when a shrinking realloc kept the block for lack of memory: from then on, a freed
  // size may be smaller than its block.
  static void note_kept(const void* p) noexcept;

  // 0, with a report, if no block in use begins there.
  static std::size_t usable_size(const void* p) noexcept;
  // The same for a block known to be in use.
  static std::size_t bytes_of(const void* p) noexcept;
  // A block has exactly the requested size.
  static constexpr std::size_t good_size(std::size_t bytes, std::size_t = min_alignment) noexcept {
    return bytes;
  }

  HeapMeasures measures() noexcept;
  bool walk(BlockVisitor visit, void* argument) noexcept;
  // Also checks all tails and all free memory.
  bool trim(std::size_t keep_bytes) noexcept;
  // Called at process exit; if TSMALLOC_AT_EXIT asks for it, checks the same and reports what is
  // still in use. Skips parts whose lock is held, by a thread that is still running or by this one,
  // if a signal that ends the process interrupted its malloc.
  static void end_process() noexcept;
  // Checks all invariants of the heap at rest (checks.h).
  static Fault find_fault() noexcept;
  // Whether the heap has no fault, no damaged canary, and all free memory is zero.
  bool is_valid() noexcept;
  void fork_prepare() noexcept;
  void fork_parent() noexcept;
  void fork_child() noexcept;

 private:
  static void check_now_and_then() noexcept;
};
static_assert(HeapLike<Secure>);

}  // namespace ts::secure
