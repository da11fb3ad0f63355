// The memory of large blocks: pages that are moved instead of copied, and pages that no block has
// touched.
#pragma once

#include <cstddef>

#include "core/types.h"

namespace ts::engine {

// ---- pages that move ----

// Pages that mremap moved. The kernel does not merge a mapping whose pages were moved with another
// one, and a process may have only about 65,000 mappings. So in a program that moves many blocks,
// memory that may contain moved pages gets a new mapping as soon as it is clean; the kernel merges
// the new one with both neighbours.

// Whether blocks should move. Not while the process has more than half of the mappings that it may
// have, which is checked every 8,192 moves; nor after stop_moving(), until the next check.
bool may_move() noexcept;
// Whether this one should; counts it.
bool begin_move() noexcept;
// To be called if memory is locked or lost: moves would leave copies of resident memory.
void stop_moving() noexcept;

// To be called with clean memory of whole OS pages, which no other thread touches: replaces its
// mapping if many blocks have moved. False if the memory is inaccessible from now on.
bool merge_mappings(void* begin, std::size_t bytes) noexcept;

// ---- pages that were never touched ----

// Large blocks, of 4 to 64 MiB, of which a program touches only the beginning. When such a block is
// freed, everything after its first eighth is discarded, and so becomes clean memory. The eighth
// stays dirty, and the next such block begins there, where pages are resident (PageHeap::join). If
// the whole span were dirty, blocks would begin anywhere in it, and in time make all of it
// resident. How many of four of its pages are resident shows whether a block is one of these. The
// system is asked at one free in 16 for a length that the program fills, and at least at one in 8
// for others.

// From this size on, two system calls cost little compared with the page faults that they avoid.
inline constexpr std::size_t min_sparse_pages = pages_for(std::size_t{4} << 20);
// Longer blocks are left to the purge: a wrong guess would make a free take too long.
inline constexpr std::size_t max_sparse_pages = pages_for(std::size_t{64} << 20);

constexpr bool may_be_sparse(std::size_t pages) noexcept {
  return pages >= min_sparse_pages && pages <= max_sparse_pages;
}

// Whether the last blocks of about this length were sparse, as far as is known.
bool are_sparse(std::size_t pages) noexcept;

// How many pages of this span, which is out of the page map, stay dirty. The others then read as
// zero.
std::size_t discard_untouched(const Span& span) noexcept;

}  // namespace ts::engine
