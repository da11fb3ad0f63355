// What a thread may not do under a lock or a hold, or in free: start a thread, call the program's
// handler, follow options that another process set. A feature asks for attention, and the next
// malloc that refills a bin, or takes pages for a large block, calls hooks::attend() (hooks.h), in
// any thread.
#pragma once

#include "base/atomic.h"
#include "os/os.h"

namespace ts::engine {

// The process that asked for attention; 0 if none is needed. Relaxed: it publishes nothing.
inline constinit Atomic<std::uint64_t> attention{0};

// Not 0 if another process, `tsmalloc set`, wrote the options, and asked for attention; all threads
// stood still for that. (Not a byte, which riscv64 exchanges by a library.)
inline constinit Atomic<std::uint32_t> options_were_set{0};

inline bool needs_attention() noexcept { return attention.load(std::memory_order_relaxed) != 0; }

// The child of a vfork has the memory of its parent, and is another process: it does nothing of
// what its parent asked for.
inline void request_attention() noexcept {
  std::uint64_t none = 0;
  attention.compare_exchange_strong(none, os::process_id(), std::memory_order_relaxed);
}

}  // namespace ts::engine
