// Fragmentation by call site: the free room of slabs that the blocks of a site keep from going
// back.
//
// A sampled block lies in the sample heap. The block that malloc would have returned, its
// placeholder, stays in use as long as the sample, so that the slab is as it would be without
// sampling. The free room of a slab, divided among its used blocks, is what each of them pins; a
// sample stands for 1 / p such blocks (samples.h). Blocks in cache bins count as used here: their
// part is no site's.
//
// Placeholders are held of blocks up to a 256th of the interval, so that they add less than a 256th
// to the memory of such blocks. Of larger blocks, few share a slab.
#pragma once

#include "features/profile/samples.h"

namespace ts::engine {

inline constexpr std::uint64_t blocks_per_placeholder = 256;

// Not where a tracer takes the stacks: it does not ask for them.
inline bool has_placeholder(std::size_t block_bytes, std::uint64_t interval) noexcept {
  return block_bytes * blocks_per_placeholder <= interval &&
         takes_stacks.load(std::memory_order_relaxed);
}

// Adds to the row what the sample stands for, by its placeholder's slab, given the descriptors of
// all pages of that. The owner may change them meanwhile.
void add_stranded(SampleRow& row, const Sample& sample, const Span* slab) noexcept;

}  // namespace ts::engine
