// Fragmentation by call site: the stranded bytes, free room of slabs that cannot be returned
// because of a site's blocks.
//
// A sampled block lies in the sample heap. The block that malloc would have returned, its
// placeholder, stays in use as long as the sample, so that the slab is as it would be without
// sampling. The free room of a slab, divided by its used blocks, is what each of them pins; a
// sample represents 1 / p such blocks (samples.h). Blocks in cache bins count as used here: their
// share belongs to no site.
//
// Only blocks of up to a 256th of the interval have placeholders, which thus add less than a 256th
// to the memory of such blocks. Few larger blocks share a slab.
#pragma once

#include "features/profile/samples.h"

namespace ts::engine {

inline constexpr std::uint64_t blocks_per_placeholder = 256;

// False while a tracer takes the stacks: it does not need stranded bytes.
inline bool has_placeholder(std::size_t block_bytes, std::uint64_t interval) noexcept {
  return block_bytes * blocks_per_placeholder <= interval &&
         takes_stacks.load(std::memory_order_relaxed);
}

// Adds to the row what the sample represents, according to its placeholder's slab, given the
// descriptors of all the slab's pages, perhaps copies, and its used blocks. The owner may change
// them meanwhile.
void add_stranded(SampleRow& row, const Sample& sample, const Span* slab,
                  std::size_t used) noexcept;

}  // namespace ts::engine
