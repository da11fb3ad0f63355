// Counts the mappings that the heap causes. Linux allows a process 65,530 of them
// (vm.max_map_count) and refuses memory at that limit even if there is plenty. So from half of it
// on, the heap gives up guards rather than use more mappings:
//
//   slabs         the guard page before a new slab is mapped along with it, so that neighbours
//                 share a mapping; an empty slab between others returns its pages but stays
//                 accessible
//   large blocks  once there are many, several share a mapping with guards only around all of them
//
// The counts only decide when to do so, so all accesses are relaxed: slightly early or late makes
// no difference.
#pragma once

#include <atomic>
#include <cstdint>

namespace ts::secure {

// The heap's share: half of the default limit. The rest is for the program.
inline constexpr std::int64_t max_mappings = 32'000;

struct Mappings {
  std::atomic<std::int64_t> of_slabs;        // runs of slabs that form one mapping
  std::atomic<std::int64_t> guarded_blocks;  // ranges of large blocks, two mappings each
  std::atomic<std::int64_t> fewer;           // how much tests lower the limit

  std::int64_t most() const noexcept {
    return max_mappings - fewer.load(std::memory_order_relaxed);
  }
  bool are_short() const noexcept {
    return of_slabs.load(std::memory_order_relaxed) +
               2 * guarded_blocks.load(std::memory_order_relaxed) >=
           most();
  }
  // Keeps some large blocks guarded no matter how many slabs there are.
  bool are_short_for_blocks() const noexcept {
    return are_short() && guarded_blocks.load(std::memory_order_relaxed) >= most() / 8;
  }
};

// Counts shared by all parts of the heap, at the end of the state's pages (space.h). Zero-filled is
// valid.
struct Counts {
  Mappings mappings;
  // Bytes of empty slabs that still have memory, in all class heaps. Only decides when to return
  // one.
  std::atomic<std::int64_t> empty_bytes;
};

}  // namespace ts::secure
