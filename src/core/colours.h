// The colour of a large block: its offset in bytes from the beginning of its span. If many large
// blocks had the same offset, they would share the sets of a cache and the low 12 bits of their
// addresses, and a loop over many arrays keeps a line of each (docs/adr/0059). Blocks of up to 64
// KiB have no colour: they replace each other in the same lines.
#pragma once

#include "core/page_map.h"

namespace ts::engine {

// One cache line, not the pair of lines by which threads' data are kept apart (base/platform.h).
inline constexpr std::size_t line_bytes = 64;
// A power of two: the number of lines in an OS page of 4 KiB.
inline constexpr std::size_t colour_count = 64;
inline constexpr std::size_t max_colour = colour_count * line_bytes;
static_assert(max_colour < page_bytes);

// How much longer than the block its span must be, to leave room for any colour.
constexpr std::size_t colour_room(std::size_t bytes, std::size_t alignment) noexcept {
  return bytes > max_small_bytes && alignment <= line_bytes ? max_colour : 0;
}

// The colour of a block that has room for one, 1 to colour_count lines; always the same for a given
// span. A hash (multiply, shift, multiply), because a single product gives spans at some regular
// distances few different colours.
inline std::size_t pick_colour(const Span& span) noexcept {
  constexpr unsigned bits = std::bit_width(colour_count) - 1;
  auto hash = static_cast<std::uint32_t>(first_page_of(&span)) * 0x9e3779b9U;
  hash = (hash ^ hash >> 15) * 0x85ebca6bU;
  return ((hash >> (32 - bits)) + 1) * line_bytes;
}

// 0 if it has none.
inline std::size_t colour_of(const Span& span) noexcept { return span.sparse_limit; }
inline void set_colour(Span& span, std::size_t colour) noexcept {
  span.sparse_limit = static_cast<std::uint16_t>(colour);
}

// How much of its span a coloured block loses: the same for every colour, so that usable sizes do
// not depend on the address.
constexpr std::size_t room_of(std::size_t colour) noexcept { return colour != 0 ? max_colour : 0; }

inline std::size_t usable_pages(const Span& span) noexcept {
  // relaxed: only a realloc changes it, and the program orders that with every other use
  return span.usable_pages.load(std::memory_order_relaxed);
}
// The bytes of a large span's block that the program may use.
inline std::size_t usable_bytes_of(const Span& span) noexcept {
  return usable_pages(span) * page_bytes - room_of(colour_of(span));
}

// The block of a large span.
inline std::byte* large_block_of(const Span& span) noexcept {
  return memory_of(&span) + colour_of(span);
}
// Whether an address in the large span's first page is its block.
inline bool is_large_block(const void* p, const Span& span) noexcept {
  return address_of(p) % page_bytes == colour_of(span);
}

}  // namespace ts::engine
