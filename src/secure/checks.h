// The invariants of the hardened heap stand beside its structures (slab.h, quarantine.h,
// class_heap.h, large_block.h, large_table.h, large_blocks.h, space.h). Checks of them, by level:
//
//   1  where a structure changes hands: check() in its own file; a slab at each change of its state
//   2  now and then at the end of a slow path: the class heap, or all large blocks, under the lock
//      that the path holds; more rarely the whole heap, part by part, each under its lock
//   3  the first at the end of each slow path, and the second more often
//
// A slow path is one that changes a slab's list, ends a slot's time in the quarantine, or adds,
// resizes or removes a large block. All of this holds while other threads run. A fault ends the
// program with the equation that does not hold. At level 0 no check is compiled into the library.
//
// The checks leave out the contents of memory (slab.h: memory): damage there is misuse by the
// program, and has reports of its own. Secure::is_valid() looks at them, too.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/check.h"
#include "base/fault.h"

namespace ts::secure {

inline constexpr std::uint32_t slow_paths_per_check = debug_level >= 3 ? 1 : 256;
inline constexpr std::uint32_t calls_per_whole_check = debug_level >= 3 ? 1024 : 8192;

// Whether a check is due, once in `period` calls.
template <std::uint32_t period>
bool is_check_due() noexcept {
  static constinit std::atomic<std::uint32_t> calls{0};  // relaxed: any call may be the one
  return calls.fetch_add(1, std::memory_order_relaxed) % period == 0;
}

inline void require_none(const Fault& fault) noexcept {
  require(!fault, fault.equation, fault.where);
}

}  // namespace ts::secure
