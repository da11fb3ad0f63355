// Checks of the hardened heap's invariants, which are documented with its structures (slab.h,
// quarantine.h, class_heap.h, large_block.h, large_table.h, large_blocks.h, space.h). By debug
// level:
//
//   1  check() where a structure changes hands; a slab at each change of its state
//   2  at the end of every 256th slow path: the class heap or all large blocks, under the lock that
//      the path already holds; more rarely the whole heap, part by part, each under its own lock
//   3  the same after every slow path, and the whole heap more often
//
// A slow path changes a slab's list, takes a slot out of the quarantine, or adds, resizes or
// removes a large block. The checks are safe while other threads run. A fault aborts the program
// with the invariant that does not hold. Level 0 compiles no checks into the library.
//
// The contents of memory are not checked here (slab.h: memory): damage there is misuse by the
// program and is reported as such. Secure::is_valid() checks both.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/check.h"
#include "base/fault.h"

namespace ts::secure {

inline constexpr std::uint32_t slow_paths_per_check = debug_level >= 3 ? 1 : 256;
inline constexpr std::uint32_t calls_per_whole_check = debug_level >= 3 ? 1024 : 8192;

// True once every `period` calls.
template <std::uint32_t period>
bool is_check_due() noexcept {
  static constinit std::atomic<std::uint32_t> calls{0};  // relaxed: any call may be the one
  return calls.fetch_add(1, std::memory_order_relaxed) % period == 0;
}

inline void require_none(const Fault& fault) noexcept {
  require(!fault, fault.equation, fault.where);
}

}  // namespace ts::secure
