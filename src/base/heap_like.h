// The interface between a heap and its users: the C functions (libc/), the public heaps of
// classic.h, and the tests. Every heap of this project satisfies the concept HeapLike, which a
// static_assert next to it verifies. Heaps do not know about errno or libc's rules.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace ts {

// All payloads are aligned to this (max_align_t on 64-bit Linux).
inline constexpr std::size_t min_alignment = 16;

enum class BlockState : std::uint8_t {
  used,    // returned to the program and not yet freed
  free,    // in the structure that the fit searches
  cached,  // freed, and kept by a thread: not searched, not merged
};

// A block as reported by a walk. `payload` to `payload + bytes` excludes the header; `owner` is the
// arena or thread heap (0 if the strategy has only one).
struct BlockView {
  const void* payload;
  std::size_t bytes;
  BlockState state;
  std::uint32_t owner;
};

// Returns false to end the walk.
using BlockVisitor = bool (*)(const BlockView& block, void* argument);

// Statistics of a heap: exact while no other thread is inside it, approximate otherwise.
struct HeapMeasures {
  std::size_t segment_bytes = 0;  // address space obtained from the system and not returned
  std::size_t free_bytes = 0;     // bytes in free blocks, including headers and cached blocks
  std::size_t free_blocks = 0;    // number of free blocks
  std::size_t cached_bytes = 0;   // part of free_bytes: kept by threads
  std::size_t grow_calls = 0;     // times the segment grew
  std::size_t sbrk_calls = 0;     // part of grow_calls: by sbrk
  std::size_t chunks = 0;         // contiguous pieces of the segment
  std::size_t heaps = 0;          // arenas or thread heaps in use (1 if the strategy has only one)
  // Where the memory is, for heaps that report it (those with table_bytes other than 0).
  std::size_t waiting_bytes = 0;   // in use: freed by another thread, not yet counted by the owner
  std::size_t large_bytes = 0;     // in use: in large blocks
  std::size_t slab_bytes = 0;      // part of free_bytes: in slabs, and not purged
  std::size_t returned_bytes = 0;  // part of free_bytes: purged, or never used
  std::size_t ended_bytes = 0;     // part of free_bytes: in slabs and bins of ended threads only
  std::size_t table_bytes = 0;     // besides segment_bytes: the heap's own tables
  std::size_t ended_heaps = 0;     // part of heaps: those of threads that ended
  std::size_t purged_bytes = 0;    // returned to the kernel so far, in total
  std::size_t limit_bytes = 0;     // soft and hard, as in effect; 0: none
  std::size_t hard_limit_bytes = 0;

  // Part of free_bytes: in no slab and not clean. (For other heaps: all that is not cached.)
  std::size_t page_bytes() const noexcept {
    return free_bytes - cached_bytes - slab_bytes - returned_bytes - ended_bytes;
  }

  // Figures taken one after another while threads run may add up to more than the whole; this caps
  // them.
  HeapMeasures bounded() const noexcept {
    HeapMeasures result = *this;
    result.free_bytes = std::min(free_bytes, segment_bytes);
    result.cached_bytes = std::min(cached_bytes, result.free_bytes);
    result.waiting_bytes = std::min(waiting_bytes, segment_bytes - result.free_bytes);
    result.large_bytes =
        std::min(large_bytes, segment_bytes - result.free_bytes - result.waiting_bytes);
    std::size_t rest = result.free_bytes - result.cached_bytes;
    for (std::size_t* const part :
         {&result.slab_bytes, &result.ended_bytes, &result.returned_bytes})
      rest -= * part = std::min(*part, rest);
    return result;
  }
};

// The operations of a heap:
//
// - allocate: a block of at least `bytes` (0: the smallest block), aligned to `alignment`, a
//   power of two >= min_alignment. Null if the kernel refuses memory.
// - release: frees a block; never called with null. Freeing a block that is not in use is misuse
//   (check.h).
// - resize: makes the block hold at least `bytes` without moving it, or changes nothing and returns
//   false.
// - usable_size: bytes that the program may use; reads only the block's own header, so it needs no
//   heap and no lock.
// - good_size: the largest size that costs no more memory than `bytes`; 0 if no block can be that
//   large.
// - trim: returns free memory to the kernel, except `keep_bytes` of the topmost free block; true if
//   anything was returned.
// - fork_prepare, fork_parent, fork_child: called around fork() by the forking thread, in that
//   order; every lock is held in between.
template <class H>
concept HeapLike = requires(H heap, void* p, const void* cp, std::size_t n, BlockVisitor visit) {
  { heap.allocate(n, n) } noexcept -> std::same_as<void*>;
  { heap.release(p) } noexcept -> std::same_as<void>;
  { heap.resize(p, n) } noexcept -> std::same_as<bool>;
  { H::usable_size(cp) } noexcept -> std::same_as<std::size_t>;
  { H::good_size(n) } noexcept -> std::same_as<std::size_t>;
  { heap.measures() } noexcept -> std::same_as<HeapMeasures>;
  { heap.walk(visit, p) } noexcept -> std::same_as<bool>;
  { heap.trim(n) } noexcept -> std::same_as<bool>;
  { heap.is_valid() } noexcept -> std::same_as<bool>;
  { heap.fork_prepare() } noexcept;
  { heap.fork_parent() } noexcept;
  { heap.fork_child() } noexcept;
};

}  // namespace ts
