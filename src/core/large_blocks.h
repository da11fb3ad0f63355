// Blocks of more than 64 KiB, those of more than 32 KiB that must read as zero, and those aligned
// to more than a page. Each has a span of its own, from the page heap and back to it; most begin
// some cache lines into it (colours.h). A block that grew by moving may have a tail that the
// program has not requested yet: address space to grow into, never touched.
#pragma once

#include "core/page_map.h"

namespace ts::engine {

// In the span of a sampled large block, in place of the number of its arena or 0.
inline constexpr std::uint32_t sample_mark = ~std::uint32_t{0};

inline bool is_large_sample(const Span& span) noexcept {
  // relaxed: only the block's allocation, resizing and release change it
  return span.arena.load(std::memory_order_relaxed) == sample_mark;
}

// `*zeroed`, if given, becomes true if the block reads as zero. Null, with ENOMEM in errno, if
// there is no memory. `alignment` is a power of two.
void* allocate_large(std::size_t bytes, std::size_t alignment, bool* zeroed) noexcept;

// Frees the large block on this page. Reports misuse if no block begins there, or another free has
// taken it.
void release_large(void* p, std::size_t page) noexcept;

// Resizes the block in place; otherwise changes nothing and returns false.
bool resize_large(void* p, std::size_t bytes) noexcept;

// Grows the block by moving its pages to another address, and releases the old one; null, with
// nothing changed, if copying is better.
void* move_large(void* p, std::size_t bytes) noexcept;

// How many bytes the program may use.
std::size_t usable_large(const void* p) noexcept;

}  // namespace ts::engine
