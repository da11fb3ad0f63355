// What a thread may not do under a lock or a hold, or in free: the start of a housekeeper, a call of
// the program's handler, and what follows from options that another process set. The next malloc that
// refills a bin, or takes pages for a large block, does it, in any thread.
#pragma once

#include "base/atomic.h"
#include "os/options.h"
#include "os/os.h"

namespace ts::engine {

// The process in which something was put off; 0 if nothing is. The child of a vfork, which has the
// memory and is another process, does nothing of it. Relaxed: it publishes nothing.
inline constinit Atomic<std::uint64_t> start_put_off{0};

// Not 0 if another process, `tsmalloc set`, wrote the options, and put this off; all threads stood
// still for that. (Not a byte, which riscv64 exchanges by a library.)
inline constinit Atomic<std::uint32_t> options_were_set{0};

// The process, for the start of a housekeeper; 0 before it is known. The child of a vfork is another one, in
// the memory of this one. relaxed: set before other threads begin
inline constinit Atomic<std::uint64_t> own_process{0};
// Not 0 in the child of a fork, where the C library's word on threads may be the parent's. relaxed: set
// before the child goes on
inline constinit Atomic<std::uint32_t> is_child{0};

// Not 0 if the process has a housekeeper, or the system refused it. (Not a byte, as above.)
inline constinit Atomic<std::uint32_t> housekeeper_starts{0};

inline void put_off_to_malloc() noexcept {
  // Not over that of the parent of a vfork.
  std::uint64_t none = 0;
  start_put_off.compare_exchange_strong(none, os::process_id(), std::memory_order_relaxed);
}

// To be called where fresh memory is needed: a second thread may have begun that never allocates.
inline void put_off_missing_start() noexcept {
  if (!counting && housekeeper_starts.load(std::memory_order_relaxed) == 0 &&
      os::has_several_threads() && is_child.load(std::memory_order_relaxed) == 0 &&
      current_options.background == Background::automatic &&
      own_process.load(std::memory_order_relaxed) == os::process_id())
    put_off_to_malloc();
}

}  // namespace ts::engine
