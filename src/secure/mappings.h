// How many mappings the heap makes the system keep. Linux allows a process 65,530 of them
// (vm.max_map_count), and refuses memory at that limit though there is enough. So from half of it
// on, the heap gives up guards instead of asking for more mappings:
//
//   slabs         the guard page before a slab becomes memory like that of the slabs beside it, and
//                 an empty slab between others gives its pages back, but stays accessible
//   large blocks  once there are many: several to a mapping, with a guard around all of them
//
// Only counts that decide when to do so: all accesses are relaxed, and a little too late or too
// early makes no difference.
#pragma once

#include <atomic>
#include <cstdint>

namespace ts::secure {

// Half of the default limit, for the heap; the rest is for the program.
inline constexpr std::int64_t max_mappings = 32'000;

struct Mappings {
  std::atomic<std::int64_t> of_slabs;        // runs of slabs that are one mapping
  std::atomic<std::int64_t> guarded_blocks;  // ranges of large blocks, of two mappings each
  std::atomic<std::int64_t> fewer;           // by how many tests lower the bound

  std::int64_t most() const noexcept {
    return max_mappings - fewer.load(std::memory_order_relaxed);
  }
  bool are_short() const noexcept {
    return of_slabs.load(std::memory_order_relaxed) +
               2 * guarded_blocks.load(std::memory_order_relaxed) >=
           most();
  }
  // Some large blocks have guards of their own however many slabs there are.
  bool are_short_for_blocks() const noexcept {
    return are_short() && guarded_blocks.load(std::memory_order_relaxed) >= most() / 8;
  }
};

// What the parts of the heap count together. It lies at the end of the state's pages (space.h), and
// is zero at first, which is valid.
struct Counts {
  Mappings mappings;
  // Of empty slabs with memory, in all class heaps: decides only when one is given back.
  std::atomic<std::int64_t> empty_bytes;
};

}  // namespace ts::secure
