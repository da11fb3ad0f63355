// See locality.h.
#include "trace/floors/locality.h"

#include <algorithm>

namespace ts::trace {
namespace {

constexpr std::uint64_t most_written = 4096;

}  // namespace

bool CacheModel::has(std::uint64_t line) {
  const auto set = lines_.begin() + static_cast<std::ptrdiff_t>(line % sets * ways);
  const auto found = std::find(set, set + ways, line);
  const bool is_hit = found != set + ways;
  std::rotate(set, is_hit ? found : found - 1, is_hit ? found + 1 : found);
  *set = line;
  return is_hit;
}

std::uint64_t CacheModel::touch(std::uint64_t address, std::uint64_t bytes) {
  std::uint64_t misses = 0;
  const std::uint64_t last = (address + std::max<std::uint64_t>(bytes, 1) - 1) / line_bytes;
  for (std::uint64_t line = address / line_bytes; line <= last; ++line) misses += has(line) ? 0 : 1;
  return misses;
}

std::uint64_t modelled_misses(const std::vector<Block>& blocks, const Addresses& addresses) {
  const std::size_t count = std::min(blocks.size(), most_modelled_blocks);
  // What happens at each call: a block ends, or begins, or one does for the other.
  struct Use {
    std::uint64_t call;
    std::uint32_t block;
    bool is_end;
  };
  std::vector<Use> uses;
  uses.reserve(2 * count);
  for (std::uint32_t i = 0; i < count; ++i) {
    uses.push_back({blocks[i].begin, i, false});
    if (blocks[i].end != never) uses.push_back({blocks[i].end, i, true});
  }
  std::stable_sort(uses.begin(), uses.end(),
                   [](const Use& one, const Use& other) { return one.call < other.call; });
  CacheModel cache;
  std::uint64_t misses = 0;
  for (const Use& use : uses) {
    const Block& block = blocks[use.block];
    if (use.is_end) {
      misses += cache.touch(addresses[use.block], 1);
      continue;
    }
    if (block.previous != no_block && addresses[block.previous] != addresses[use.block]) {
      misses += cache.touch(addresses[block.previous],
                            std::min(blocks[block.previous].bytes, block.bytes));  // the copy
    }
    misses += cache.touch(addresses[use.block], std::min(block.bytes, most_written));
  }
  return misses;
}

}  // namespace ts::trace
