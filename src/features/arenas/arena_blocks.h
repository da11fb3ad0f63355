// The large blocks of an arena, which nothing else finds when it ends: a list.
#pragma once

#include "features/arenas/arena_use.h"

namespace ts::engine {

inline std::uint32_t number_of(const ThreadHeap& arena) noexcept {
  return static_cast<std::uint32_t>(&arena - page_map.heaps);
}

// Takes the large block of a span out of the list of its arena, if it is in one. Without a lock.
void remove_large_block(Span& span) noexcept;

// Takes a block out of the arena's list; null if that is empty.
Span* pop_large_block(ThreadHeap& arena) noexcept;

}  // namespace ts::engine
