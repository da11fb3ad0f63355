// Large blocks, of 4 to 64 MiB, of which a program touches the beginning alone. Their free gives back what lies
// behind the first eighth, so that this is clean memory. The eighth stays dirty, and the next such
// block begins there, where pages are resident (PageHeap::join). As dirty memory throughout, blocks
// would begin anywhere, and make all of it resident in time. The page table says which blocks these
// are, from two pages of one. It is asked at one free in 16 of a length that the program fills, and
// at one in 8 at least of others.
#pragma once

#include <cstddef>

#include "engine/types.h"

namespace ts::engine {

// From here on, two system calls cost little beside the page faults that they spare.
inline constexpr std::size_t min_sparse_pages = pages_for(std::size_t{4} << 20);
// Longer ones, of which a wrong guess would cost too long a call, are left to the purge.
inline constexpr std::size_t max_sparse_pages = pages_for(std::size_t{64} << 20);

constexpr bool may_be_sparse(std::size_t pages) noexcept {
  return pages >= min_sparse_pages && pages <= max_sparse_pages;
}

// Whether the last block of about this length was such a block, as far as is known.
bool are_sparse(std::size_t pages) noexcept;

// How many pages of so long a span, which is out of the page map, stay dirty. The others read as zero.
std::size_t discard_untouched(const Span& span) noexcept;

}  // namespace ts::engine
