// Every strategy tried on a plan's blocks, and the one that is taken.
//
// Why it exists: no strategy is best on all traces (strategies.h), and trying all of them takes
// seconds. What it refuses to do: trade much memory for locality. Of the plans that touch at most 1
// % more pages than the smallest, the one whose misses and copies cost least is taken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/floors/strategies.h"

namespace ts::trace {

inline constexpr std::uint64_t page_bytes = 4096;

struct Outcome {
  std::string strategy;
  std::uint64_t span_bytes = 0;    // from the arena's beginning to the end of the highest block
  std::uint64_t pages = 0;         // on which at least one requested byte ever lies
  std::uint64_t moves = 0;         // resizes to another address
  std::uint64_t copied_bytes = 0;  // in them
  std::uint64_t misses = 0;        // modelled

  // What the addresses cost, roughly: 20 ns for a miss, 10 bytes copied in a nanosecond.
  std::uint64_t cost_ns() const { return 20 * misses + copied_bytes / 10; }
};

struct Choice {
  Addresses addresses;
  std::vector<Outcome> outcomes;  // of all strategies
  std::size_t taken = 0;
};

Choice choose_plan(const std::vector<Block>& blocks);

// What addresses come to; the strategy's name is left empty.
Outcome judge(const std::vector<Block>& blocks, const Addresses& addresses);

}  // namespace ts::trace
