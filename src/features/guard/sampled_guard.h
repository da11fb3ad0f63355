// Sampled blocks on pages of their own, to detect memory errors in production, after GWP-ASan
// (Serebryany et al., 2024). TSMALLOC_GUARD_SAMPLE=N samples about one in N of the blocks that
// leave slabs; without it, none is. The block ends where its OS page ends, and the page after it
// is inaccessible. Once the block is freed, so is its own page, until 127 others have been freed.
// An access there ends the program, as any bad access does, with a report of the call stacks that
// allocated and freed the block.
//
// Blocks of more than an OS page are never sampled. A write past the requested size is not detected
// as long as it stays within the size class.
#pragma once

#include "core/size_classes.h"
#include "os/mutex.h"

namespace ts::engine {

// Guards the slots; declared here for fork.cpp, which takes all locks in order.
inline constinit Mutex sampled_guard_lock;

// In the child of a fork: abandons the sample that another thread was taking.
void forget_samples_in_progress() noexcept;

}  // namespace ts::engine
