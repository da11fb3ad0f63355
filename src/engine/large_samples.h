// Large blocks in the heap profile: each is a sample, or not, by itself. (No block of an arena is.)
#pragma once

#include "engine/page_map.h"
#include "engine/sampling_switch.h"

namespace ts::engine {

// What the span of a sampled large block has where others have the number of their arena, or 0.
inline constexpr std::uint32_t sample_mark = ~std::uint32_t{0};

inline bool is_large_sample(const Span& span) noexcept {
  // relaxed: only the block's allocation, resizing and release change it
  return span.used.load(std::memory_order_relaxed) == sample_mark;
}

// To be called when a large block of `block_bytes` was allocated, or has become as large; without a
// lock. Makes it a sample, or not. `caller` as for allocate_sample() (sample_heap.h).
[[gnu::cold]] void sample_large(void* p, std::size_t bytes, std::size_t block_bytes,
                                const void* caller) noexcept;

// To be called before a sampled large block is freed, or becomes another; without a lock.
[[gnu::cold]] void forget_large_sample(Span& span) noexcept;

}  // namespace ts::engine
