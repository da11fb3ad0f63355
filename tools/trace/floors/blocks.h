// The objects of a plan as blocks: so many bytes, from one operation to another.
//
// Why it exists: planning addresses is packing rectangles, time against addresses. What it refuses
// to do: know where anything lies. Time is the number of a call in the recorded order, in which
// `replay --schedule recorded` makes them.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "replay/plan_view.h"

namespace ts::trace {

inline constexpr std::uint64_t grain = 16;  // what malloc aligns to
inline constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();
inline constexpr std::uint32_t no_block = std::numeric_limits<std::uint32_t>::max();

// What a request takes at least: a multiple of the grain, and something even for no bytes, since
// each object has an address of its own.
constexpr std::uint64_t rounded(std::uint64_t bytes) {
  return bytes == 0 ? grain : (bytes + grain - 1) / grain * grain;
}

// What an object is between its allocation or resize and the next one or its free. A resize that
// moves needs the old block until the new one has its contents: so both are there during that one
// call.
struct Block {
  std::uint64_t begin = 0;            // the call that makes it
  std::uint64_t end = never;          // the first call that may use its memory for another
  std::uint64_t bytes = 0;            // requested
  std::uint64_t operation = 0;        // that makes it: an index into the plan's
  std::uint32_t previous = no_block;  // of which it is a resize
  std::uint8_t log2_alignment = 4;

  std::uint64_t size() const { return rounded(bytes); }
  bool is_live_at(std::uint64_t time) const { return begin <= time && time < end; }
};

struct Blocks {
  std::vector<Block> blocks;  // by their beginnings
  std::uint64_t calls = 0;    // all of the image
};

// Throws Error if the plan contradicts itself, or has more than 2^32 - 2 blocks.
Blocks blocks_of(const plan::View& view, const plan::Image& image);

// The least memory that any allocator can do with that aligns to the grain: the highest sum of
// rounded sizes of live objects. In a resize only the new size counts, since it may happen in
// place.
struct Bound {
  std::uint64_t bytes = 0;
  std::uint64_t call = 0;  // the first after which it is reached
};
Bound lower_bound(const Blocks& blocks);

// For scale: what some program can make any allocator need that does not know the future and does
// not move blocks. With M the most live bytes and sizes from 1 to n units, all powers of two, that
// is M * (log2(n) / 2 + 1) - n + 1 units, and there is an allocator that needs no more (Robson,
// JACM 1971). Sizes in between do not change the order. No trace of a real program is like that.
std::uint64_t robson_bytes(std::uint64_t live, std::uint64_t smallest, std::uint64_t largest);

}  // namespace ts::trace
