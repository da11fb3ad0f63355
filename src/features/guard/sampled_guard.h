// Sampled blocks on pages of their own, for finding misuse in production, after GWP-ASan
// (Serebryany et al., 2024). TSMALLOC_GUARD_SAMPLE=N makes about one in N of the blocks that leave
// slabs such a block; without it, none is. The block ends where its OS page ends, and the page
// behind it must not be touched. Once it is freed, neither must its own, until 127 others have been
// freed. An access there ends the program, as a bad access does anyway, with a report of the call
// stacks that allocated and freed the block.
//
// Blocks of more than an OS page are never sampled. A write behind the requested bytes is not
// noticed as long as it stays within the size class.
#pragma once

#include "core/size_classes.h"
#include "os/mutex.h"

namespace ts::engine {

// Guards the slots; for fork.cpp, which takes all locks in order.
inline constinit Mutex sampled_guard_lock;

// In the child of a fork: a sample that another thread was taking is not finished.
void forget_samples_in_progress() noexcept;

}  // namespace ts::engine
