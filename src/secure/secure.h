// The hardened heap as a heap like the others (base/heap_like.h), made to find misuse and to
// survive it, not to be fast: docs/design/hardened.md has the design. There is one per process.
// Small blocks come from the slabs of a class (class_heap.h), and a large one has a mapping of its
// own (large_blocks.h). A block of no bytes is an address that no access may touch.
#pragma once

#include <cstddef>

#include "base/check.h"
#include "base/heap_like.h"

namespace ts::secure {

class Secure {
 public:
  static constexpr bool implements_libc_rules = true;  // override/semantics.h
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
  // Reports a size that a request for the block cannot have named. Of what is no block, free will.
  static void check_size(const void* p, std::size_t bytes, std::size_t alignment) noexcept;
  // The same only of sizes that are more than the block has.
  static void check_most(const void* p, std::size_t bytes) noexcept;
  // A realloc was to make the block smaller, and left it as it was for want of memory: from now on,
  // a size may be less than that of the block.
  static void note_kept(const void* p) noexcept;

  // 0 of what is no block, which is reported.
  static std::size_t usable_size(const void* p) noexcept;
  // The same of what is known to be one.
  static std::size_t bytes_of(const void* p) noexcept;
  static std::size_t good_size(std::size_t bytes, std::size_t alignment = min_alignment) noexcept;

  HeapMeasures measures() noexcept;
  bool walk(BlockVisitor visit, void* argument) noexcept;
  // Looks at all canaries and all free memory, too.
  bool trim(std::size_t keep_bytes) noexcept;
  bool is_valid() noexcept;
  void fork_prepare() noexcept;
  void fork_parent() noexcept;
  void fork_child() noexcept;
};
static_assert(HeapLike<Secure>);

}  // namespace ts::secure
