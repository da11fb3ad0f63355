// Sampled blocks on pages of their own, for finding misuse in production, after GWP-ASan
// (Serebryany et al., 2024): off unless TSMALLOC_GUARD_SAMPLE=N is set, and then about one in N of
// the blocks that leave slabs is such a block. It ends where its page ends, and the page behind it
// must not be touched; once it is freed, neither must its own, until 127 others have been freed.
// Whoever does so dies as he would have anyway, but with a report of who allocated the block, and
// who freed it.
//
// It refuses blocks of more than a page, and to guess: a write behind the end of less than what the
// size class is larger than the request is not noticed.
#pragma once

#include "engine/size_classes.h"

namespace ts::engine {

// Called when a bin needs blocks: one to give out instead, if it is time for one; or null. The
// caller's heap is sound, and it holds no lock.
[[gnu::cold]] void* allocate_guarded(const SizeClass& c) noexcept;

// Of any pointer. Takes a guarded block back; false if it is none. A double free is reported.
[[gnu::cold]] bool release_guarded(const void* p) noexcept;

// The bytes of a guarded block in use that begins there, 0 if there is none.
[[gnu::cold]] std::size_t guarded_bytes(const void* p) noexcept;

// Around a fork; nothing of it allocates.
void guarded_fork_prepare() noexcept;
void guarded_fork_parent() noexcept;
void guarded_fork_child() noexcept;

}  // namespace ts::engine
