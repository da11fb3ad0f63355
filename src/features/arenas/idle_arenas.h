// Arenas that no thread uses: other threads free their blocks, but no owner collects them. The
// background thread and trim maintain such arenas, one at a time; a thread that wants to use one
// meanwhile waits for it (claim_arena).
#pragma once

namespace ts::engine {

// Collects from idle arenas, and retires their empty slabs.
void collect_idle_arenas() noexcept;

// Flushes the arenas that are idle or used by the calling thread, and purges OS pages within their
// slabs.
void flush_arenas() noexcept;

}  // namespace ts::engine
