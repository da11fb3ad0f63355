// The contract between a heap and its users: the C functions (libc/), the public heaps of
// classic.h, the tests. Every heap of this project satisfies the concept HeapLike, as a
// static_assert beside it proves. A heap knows nothing of errno or of libc's rules.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace ts {

// Every payload is aligned to this (max_align_t on the 64-bit ABIs of Linux).
inline constexpr std::size_t min_alignment = 16;

enum class BlockState : std::uint8_t {
  used,    // handed out and not yet freed
  free,    // in the structure that the fit searches
  cached,  // freed, and kept aside by a thread: not searched, not merged
};

// One block as a walk reports it. `payload` to `payload + bytes` is the block without its header;
// `owner` is the arena or thread heap (0 if the strategy has only one).
struct BlockView {
  const void* payload;
  std::size_t bytes;
  BlockState state;
  std::uint32_t owner;
};

// Returns false to end the walk.
using BlockVisitor = bool (*)(const BlockView& block, void* argument);

// Measures of a heap: exact while no other thread is inside it, and a best effort otherwise.
struct HeapMeasures {
  std::size_t segment_bytes = 0;  // address space obtained from the system and not given back
  std::size_t free_bytes =
      0;  // of those, bytes in free blocks, headers included, cached blocks too
  std::size_t free_blocks = 0;   // number of those free blocks
  std::size_t cached_bytes = 0;  // of free_bytes, held aside by threads
  std::size_t grow_calls = 0;    // times the segment grew
  std::size_t sbrk_calls = 0;    // of those, by sbrk
  std::size_t chunks = 0;        // contiguous pieces that the segment consists of
  std::size_t heaps = 0;         // arenas or thread heaps in use (1 if the strategy has only one)
  // Where the memory is, of a heap that tells it: then table_bytes is not 0.
  std::size_t waiting_bytes = 0;   // of those in use: freed by others than their owner, which
                                   // counts them at its next collect
  std::size_t large_bytes = 0;     // of those in use: in large blocks
  std::size_t slab_bytes = 0;      // of free_bytes: within slabs, and not given back
  std::size_t returned_bytes = 0;  // of free_bytes: clean, given back or never used
  std::size_t ended_bytes = 0;     // of free_bytes: in slabs and bins of threads that ended,
                                   // and in no other figure
  std::size_t table_bytes = 0;     // beside segment_bytes: the heap's own tables
  std::size_t ended_heaps = 0;     // of heaps: those of threads that ended
  std::size_t purged_bytes = 0;    // given back to the system so far, in all
  std::size_t limit_bytes = 0;     // soft and hard, in effect; 0: none
  std::size_t hard_limit_bytes = 0;

  // Of free_bytes: in no slab, and not clean. (Of all other heaps: what is not cached.)
  std::size_t page_bytes() const noexcept {
    return free_bytes - cached_bytes - slab_bytes - returned_bytes - ended_bytes;
  }

  // Measured one after the other while threads go on, a part may come out as more than the whole.
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
// - allocate: a block of at least `bytes` (0 means the least block), aligned to `alignment`, a
//   power of two >= min_alignment. Null if the system refuses memory.
// - release: takes back a block of allocate; never null. A block that is not in use is a misuse
//   (check.h).
// - resize: makes the block hold at least `bytes` without moving it, or changes nothing and returns
//   false.
// - usable_size: bytes that the program may use; reads the block's own header only, so it needs no
//   heap and no lock.
// - good_size: the most bytes that cost no more memory than `bytes` do; 0 if no block can have so
//   many.
// - trim: gives free memory back to the system, but keeps `keep_bytes` of the topmost free block;
//   true if anything was given back.
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
