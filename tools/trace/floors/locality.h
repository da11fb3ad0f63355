// How many cache lines a program would miss, as far as addresses decide it.
//
// Why it exists: of plans that take about the same memory, the one is wanted that is also quick,
// and that is a matter of which lines are used again while they are near. What it refuses to do: be
// any real processor. One cache of 1 MiB, 16 ways, least recently used goes first; a program that
// writes the first 4 KiB of each new block, and looks at a block's first bytes when it frees it.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/floors/blocks.h"
#include "trace/floors/strategies.h"

namespace ts::trace {

class CacheModel {
 public:
  static constexpr std::uint64_t line_bytes = 64;

  CacheModel() : lines_(sets * ways, no_line) {}

  // Lines that were not there, of these bytes.
  std::uint64_t touch(std::uint64_t address, std::uint64_t bytes);

 private:
  static constexpr std::size_t sets = 1024;
  static constexpr std::size_t ways = 16;
  static constexpr std::uint64_t no_line = ~std::uint64_t{0};

  bool has(std::uint64_t line);  // and makes it the most recent

  std::vector<std::uint64_t> lines_;  // of each set, the most recent first
};

// Of the first blocks only, where there are very many: enough to compare plans.
inline constexpr std::size_t most_modelled_blocks = 2'000'000;
std::uint64_t modelled_misses(const std::vector<Block>& blocks, const Addresses& addresses);

}  // namespace ts::trace
