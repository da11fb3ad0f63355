// Blocks of more than 64 KiB, those of more than 32 KiB that have to read as zero, and those aligned
// to more than a page. Each is a span of its own, from the page heap and back to it; most begin some
// cache lines into it (colours.h). A block that
// grew by moving may have a tail that the program has not asked for yet: address space to grow
// into, never touched.
#pragma once

#include "core/page_map.h"

namespace ts::engine {

// What the span of a sampled large block has where others have the number of their arena, or 0.
inline constexpr std::uint32_t sample_mark = ~std::uint32_t{0};

inline bool is_large_sample(const Span& span) noexcept {
  // relaxed: only the block's allocation, resizing and release change it
  return span.used.load(std::memory_order_relaxed) == sample_mark;
}

// `*zeroed`, if given, becomes true if the block reads as zero. Null, and ENOMEM in errno, without
// memory. `alignment` is a power of two.
void* allocate_large(std::size_t bytes, std::size_t alignment, bool* zeroed) noexcept;

// Takes a large block back, of that page. Reports it if no block begins there, or another free has
// taken it.
void release_large(void* p, std::size_t page) noexcept;

// Makes the block as long, where it is; or changes nothing and returns false.
bool resize_large(void* p, std::size_t bytes) noexcept;

// Makes the block longer by giving its pages another address, and releases the old one; null, with
// nothing changed, where copying serves better.
void* move_large(void* p, std::size_t bytes) noexcept;

// Bytes that the program may use.
std::size_t usable_large(const void* p) noexcept;

}  // namespace ts::engine
