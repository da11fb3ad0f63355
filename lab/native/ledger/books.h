// The sums, and what each event adds to them.
//
// Why it exists: the record changes under the events: a file takes the place of memory, a child's
// that of its parent. Each thread has a place of its own in it. What it refuses to do: know how an
// event came about.
#pragma once

#include <cstdint>

#include "ledger/blocks.h"

namespace ts {

// At every event, first of all: the process has a record of its own from here on.
void begin_books_if_new();

// The calling thread's number, which is never 0.
std::uint32_t own_thread();

void book_allocation(std::uint64_t bytes, std::uint64_t reused_bytes);
void book_free(Block block);
void book_resize(std::uint64_t old_bytes, std::uint64_t new_bytes, std::uint64_t reused_bytes);
void book_untracked();

// A nested call had booked the block with another size.
void book_correction(std::uint64_t booked_bytes, std::uint64_t bytes);

// A block that went in a way that we do not see: it is not alive any more.
void book_missed_free(Block block);

}  // namespace ts
