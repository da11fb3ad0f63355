// Large blocks in the heap profile: each is sampled independently. (Blocks of arenas are not.)
#pragma once

#include "core/large_blocks.h"
#include "features/profile/sampling_switch.h"

namespace ts::engine {

// To be called before a sampled large block is freed or resized; without a lock.
[[gnu::cold]] void forget_large_sample(Span& span) noexcept;

}  // namespace ts::engine
