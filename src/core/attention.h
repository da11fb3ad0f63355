// Deferred requests for things that a thread must not do under a lock or a hold, or in free: start
// a thread, call the program's handler, follow options that another process set. A feature requests
// attention; the next malloc, in any thread, that refills a bin or takes pages for a large block
// then calls hooks::attend() (hooks.h).
#pragma once

#include "base/atomic.h"
#include "os/os.h"

namespace ts::engine {

// The process that requested attention; 0 if none is needed. Relaxed: it publishes nothing.
inline constinit Atomic<std::uint64_t> attention{0};

// Nonzero if another process (`tsmalloc set`) wrote the options and requested attention; all
// threads were stopped meanwhile. (A word, because riscv64 needs libatomic to exchange a byte.)
inline constinit Atomic<std::uint32_t> options_were_set{0};

inline bool needs_attention() noexcept { return attention.load(std::memory_order_relaxed) != 0; }

// The child of a vfork shares its parent's memory but is another process: it must not act on its
// parent's requests.
inline void request_attention() noexcept {
  std::uint64_t none = 0;
  attention.compare_exchange_strong(none, os::process_id(), std::memory_order_relaxed);
}

}  // namespace ts::engine
