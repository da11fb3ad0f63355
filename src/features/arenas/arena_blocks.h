// The list of an arena's large blocks, by which they are found when the arena ends.
#pragma once

#include "features/arenas/arena_use.h"

namespace ts::engine {

inline std::uint32_t number_of(const ThreadHeap& arena) noexcept {
  return static_cast<std::uint32_t>(&arena - page_map.heaps);
}

// Removes a span's large block from the list of its arena, if it is in one. Without a lock.
void remove_large_block(Span& span) noexcept;

// Removes a block from the arena's list; null if the list is empty.
Span* pop_large_block(ThreadHeap& arena) noexcept;

}  // namespace ts::engine
