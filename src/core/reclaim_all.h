// Reclaims from all heaps, for a thread that returns idle memory or has none left.
#pragma once

namespace ts::engine {

// Takes the spare lists (spare_lists.h) of all heaps that are not held, reclaims from them
// (reclaim.h), and takes their empty slabs; true if there were slabs.
bool reclaim_all() noexcept;

// Likewise, but takes only spare lists that are too old.
void reclaim_idle() noexcept;

}  // namespace ts::engine
