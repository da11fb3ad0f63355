// Ways to plan addresses when the whole future is known.
//
// Why it exists: the least memory for given lifetimes ("dynamic storage allocation", Garey &
// Johnson SR2) is NP-hard to find, and NP-hard even to approximate closely in theory's terms: the
// best known polynomial algorithms guarantee 3 times the highest live sum (Gergov, SODA 1999) and 2
// + epsilon times the optimum (Buchsbaum, Karloff, Kenyon, Reingold & Thorup, STOC 2003). But the
// same paper shows that where no block is large against the sum, the optimum comes as close to the
// sum as one likes; and on real programs address-ordered first fit and best fit waste some per cent
// even without knowing the future (Johnstone & Wilson, ISMM 1998). So: several quick ways, each
// good at something, and the one that turns out best on this trace is taken. What they refuse to
// do: move a block that they placed.
//
#pragma once

#include <cstdint>
#include <vector>

#include "trace/floors/blocks.h"

namespace ts::trace {

using Addresses = std::vector<std::uint64_t>;  // of each block, in bytes from the arena's beginning

enum class Fit { lowest, best };

// As an allocator would, in the order of the calls: a block that grows stays where it is if it can.
Addresses sweep(const std::vector<Block>& blocks, Fit fit);

// First the blocks that are live at the moment when most bytes are, side by side in the order of
// their beginnings: no byte is lost between them. Before that moment, they fill the memory from
// below; so what dies earlier is put as low as it can lie without meeting one of them: just above
// where they will have come to at its end. What begins later takes the lowest gap that they leave.
Addresses around_peak(const std::vector<Block>& blocks);

// The same with time running backwards: perfect order for what happens after the peak.
Addresses around_peak_backwards(const std::vector<Block>& blocks);

// The largest first, each as low as it can lie among those that are placed (Pisarchyk & Lee,
// "Efficient memory management for deep neural net inference", 2020): the best known quick way
// where few large blocks matter. Its time grows with the square of the blocks, so it is for few.
inline constexpr std::size_t most_by_size = 5'000;
Addresses largest_first(const std::vector<Block>& blocks);

// Blocks in which an object has the room that it will need at its largest from the beginning, so
// that no resize moves it. blocks[of[i]] is the one for block i.
struct Merged {
  std::vector<Block> blocks;
  std::vector<std::uint32_t> of;
};
Merged merge_chains(const std::vector<Block>& blocks);

}  // namespace ts::trace
