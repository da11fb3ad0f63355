// Pages that mremap moved. The kernel merges no mapping whose pages were moved with another one, and
// a process may have about 65,000 mappings. So in a program that moves many blocks, a new mapping
// comes where moved pages may have been, as soon as the memory is clean; the kernel merges that one
// with both neighbours.
#pragma once

#include <cstddef>

namespace ts::engine {

// Whether blocks should move: not while the process has more than half of the mappings that it may
// have, which is looked at once in 8,192 moves; nor before the next look after stop_moving().
bool may_move() noexcept;
// The same, and counts a move that is about to be tried.
bool begin_move() noexcept;
// Memory is locked, or lost: what moves leave behind would stay resident.
void stop_moving() noexcept;

// To be called with clean memory of whole OS pages, which no other thread touches: puts a new
// mapping in its place, if many blocks have moved. False if the memory is inaccessible from then on.
bool merge_mappings(void* begin, std::size_t bytes) noexcept;

}  // namespace ts::engine
