// Large blocks in the heap profile: each is a sample, or not, by itself. (No block of an arena is.)
#pragma once

#include "core/large_blocks.h"
#include "features/profile/sampling_switch.h"

namespace ts::engine {

// To be called before a sampled large block is freed, or becomes another; without a lock.
[[gnu::cold]] void forget_large_sample(Span& span) noexcept;

}  // namespace ts::engine
