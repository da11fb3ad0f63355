// The memory of large blocks: pages that move instead of being copied, and pages that no block has
// touched.
#pragma once

#include <cstddef>

#include "core/types.h"

namespace ts::engine {

// ---- pages that move ----

// Pages that mremap moved. The kernel merges no mapping whose pages were moved with another one,
// and a process may have about 65,000 mappings. So in a program that moves many blocks, a new
// mapping comes where moved pages may have been, as soon as the memory is clean; the kernel merges
// that one with both neighbours.

// Whether blocks should move: not while the process has more than half of the mappings that it may
// have, which is looked at once in 8,192 moves; nor before the next look after stop_moving().
bool may_move() noexcept;
// The same, and counts a move that is about to be tried.
bool begin_move() noexcept;
// Memory is locked, or lost: what moves leave behind would stay resident.
void stop_moving() noexcept;

// To be called with clean memory of whole OS pages, which no other thread touches: puts a new
// mapping in its place, if many blocks have moved. False if the memory is inaccessible from then
// on.
bool merge_mappings(void* begin, std::size_t bytes) noexcept;

// ---- pages that were never touched ----

// Large blocks, of 4 to 64 MiB, of which a program touches the beginning alone. Their free gives
// back what lies behind the first eighth, so that this is clean memory. The eighth stays dirty, and
// the next such block begins there, where pages are resident (PageHeap::join). As dirty memory
// throughout, blocks would begin anywhere, and make all of it resident in time. The page table says
// which blocks these are, from two pages of one. It is asked at one free in 16 of a length that the
// program fills, and at one in 8 at least of others.

// From here on, two system calls cost little beside the page faults that they spare.
inline constexpr std::size_t min_sparse_pages = pages_for(std::size_t{4} << 20);
// Longer ones, of which a wrong guess would cost too long a call, are left to the purge.
inline constexpr std::size_t max_sparse_pages = pages_for(std::size_t{64} << 20);

constexpr bool may_be_sparse(std::size_t pages) noexcept {
  return pages >= min_sparse_pages && pages <= max_sparse_pages;
}

// Whether the last block of about this length was such a block, as far as is known.
bool are_sparse(std::size_t pages) noexcept;

// How many pages of so long a span, which is out of the page map, stay dirty. The others read as
// zero.
std::size_t discard_untouched(const Span& span) noexcept;

}  // namespace ts::engine
