// Blocks that a heap of the engine keeps aside, in another process.
#pragma once

#include "outside/engine_image.h"

namespace ts {

// Bytes of the blocks in its cache bins, sampling bins and batches of remote frees: slabs count them
// as used.
std::size_t cached_bytes(const Process& process, const EngineImage& image,
                         const engine::ThreadHeap& heap);

}  // namespace ts
