// Planned addresses in the plan's file: writing them, and checking them when they are there.
//
// Why it exists: a plan whose blocks overlap would make a floor that nobody can reach, and a replay
// that corrupts blocks. So what is in the file is checked against the file's own operations by code
// that shares nothing with the planning: no blocks, no gaps, only the calls in their order. What it
// refuses to do: mend.
#pragma once

#include <string>

#include "trace/floors/blocks.h"
#include "trace/floors/strategies.h"

namespace ts::trace {

// Appends the addresses to a plan that has none, for its first image. Throws Error.
void write_addresses(const std::string& path, const Blocks& blocks, const Addresses& addresses);

// Throws Error for the first call whose object overlaps another live one, is not aligned, lies
// outside of the arena, or is wrongly said to be on fresh memory.
void check_addresses(const plan::View& view, const plan::Image& image);

}  // namespace ts::trace
