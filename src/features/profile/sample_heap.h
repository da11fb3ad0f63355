// The heap of sampled small blocks: one per process, under samples_lock. Its number is an arena's,
// so a free of such a block takes the slow path of a free into an arena. No other free pays for it.
#pragma once

#include "features/profile/samples.h"

namespace ts::engine {

// Its number as in map entries; 0 before the first sample. relaxed: a thread that frees a sample
// got its address from the thread that took it.
inline constinit std::atomic<PageMapEntry> sample_heap_entry{0};

// Whether the entry of an arena's page is the sample heap's.
inline bool is_of_sample(PageMapEntry entry) noexcept {
  return (entry ^ sample_heap_entry.load(std::memory_order_relaxed)) < heap_unit;
}

// Allocates a sampled block of the class, without its key; null if there is no room. Without a
// lock. `caller` is the return address of malloc's caller, if known. The sample keeps the
// placeholder.
[[gnu::cold]] void* allocate_sample(std::size_t bytes, unsigned size_class, std::uint64_t interval,
                                    const void* caller, void* placeholder) noexcept;

// Flushes the sample heap's caches.
void flush_sample_heap() noexcept;

}  // namespace ts::engine
