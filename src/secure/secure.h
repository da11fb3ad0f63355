// The hardened heap as a heap like the others (base/heap_like.h). It finds misuse of memory, and
// stays sound after it, at a cost in speed (docs/design/hardened.md). There is one per process.
// Small blocks come from the slabs of a class (class_heap.h), and a large one has a mapping of its
// own (large_blocks.h). A block of no bytes is an address that no access may touch.
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
  // All memory is zero when it is handed out.
  void* allocate_zeroed(std::size_t bytes) noexcept { return allocate(bytes, min_alignment); }
  void release(void* p) noexcept;
  // In place only if the block would have come out as it is: sizes stay exact.
  bool resize(void* p, std::size_t bytes) noexcept;
  void* move(void* p, std::size_t bytes) noexcept;
  static constexpr std::size_t size_to_grow_into(std::size_t, std::size_t bytes) noexcept {
    return bytes;
  }

  // Whether a block in use begins there; if not, or if it is damaged, that is reported.
  static bool is_block(const void* p, FoundBy found_by) noexcept;
  // Whether a block in use begins there, damaged or not.
  static bool owns(const void* p) noexcept;
  // Reports a size that no request for the block can have named. A pointer to no block is left to
  // free().
  static void check_size(const void* p, std::size_t bytes, std::size_t alignment) noexcept;
  // The same only of sizes that are more than the block has.
  static void check_most(const void* p, std::size_t bytes) noexcept;
  // To be called when a realloc to fewer bytes kept the block for want of memory: from then on, a
  // size may be less than that of a block.
  static void note_kept(const void* p) noexcept;

  // 0 if no block in use begins there, which is reported.
  static std::size_t usable_size(const void* p) noexcept;
  // The same of a block that is known to be in use.
  static std::size_t bytes_of(const void* p) noexcept;
  // No block has a byte more than was asked for.
  static constexpr std::size_t good_size(std::size_t bytes, std::size_t = min_alignment) noexcept {
    return bytes;
  }

  HeapMeasures measures() noexcept;
  bool walk(BlockVisitor visit, void* argument) noexcept;
  // Looks at all tails and all free memory, too.
  bool trim(std::size_t keep_bytes) noexcept;
  // When the process ends, and TSMALLOC_AT_EXIT says so: looks at the same, and tells what is still
  // in use. A part whose lock is held is left out: by a thread that goes on, or by this one, in
  // whose malloc a signal came that ends the process.
  static void end_process() noexcept;
  // Checks all invariants of the heap at rest (checks.h).
  static Fault find_fault() noexcept;
  // Whether it has no fault, no canary is damaged and all free memory is zero.
  bool is_valid() noexcept;
  void fork_prepare() noexcept;
  void fork_parent() noexcept;
  void fork_child() noexcept;

 private:
  static void check_now_and_then() noexcept;
};
static_assert(HeapLike<Secure>);

}  // namespace ts::secure
