// What a thread may not do under a lock or a hold, or in free: the start of a housekeeper, a call of
// the program's handler, and what follows from options that another process set. The next malloc that
// refills a bin, or takes pages for a large block, does it, in any thread.
#pragma once

#include "base/atomic.h"
#include "os/os.h"

namespace ts::engine {

// The process in which something was put off; 0 if nothing is. The child of a vfork, which has the
// memory and is another process, does nothing of it. Relaxed: it publishes nothing.
inline constinit Atomic<std::uint64_t> start_put_off{0};

// Not 0 if another process, `tsmalloc set`, wrote the options, and put this off; all threads stood
// still for that. (Not a byte, which riscv64 exchanges by a library.)
inline constinit Atomic<std::uint32_t> options_were_set{0};

inline void put_off_to_malloc() noexcept {
  // Not over that of the parent of a vfork.
  std::uint64_t none = 0;
  start_put_off.compare_exchange_strong(none, os::process_id(), std::memory_order_relaxed);
}

}  // namespace ts::engine
