// Stresses 8 to 16,000 bytes in threads that also free each other's blocks: each replaces random
// blocks of its own, and occasionally swaps a handful of them for those that another thread has
// left in a box. `linear`: all sizes are equally likely, so most blocks are some kilobytes; `log`:
// all octaves are equally likely, so most are small, but most bytes are in large ones. Leaves out
// threads that end. An operation is a free and a malloc; of each block the first byte, one byte in
// each page and the last are written, and the ends are read.
#include <mutex>
#include <utility>

#include "programs/support/team.h"
#include "workload.h"

namespace {

using namespace ts::bench;

constexpr std::size_t least_bytes = 8;
constexpr std::size_t most_bytes = 16'000;

std::size_t pick_linear(Random& random) {
  return least_bytes + pick(random, most_bytes - least_bytes + 1);
}

// 8 to 2^14 - 1, capped at the maximum.
std::size_t pick_log(Random& random) {
  const std::size_t octave = least_bytes << pick(random, 11);
  const std::size_t bytes = octave + pick(random, octave);
  return bytes < most_bytes ? bytes : most_bytes;
}

constexpr std::size_t box_blocks = 32;
constexpr std::size_t box_count = 8;
constexpr std::size_t operations_between_swaps = 100;

struct alignas(128) Box {
  std::mutex mutex;
  Block blocks[box_blocks];
};
Box boxes[box_count];

void swap_some(Block* mine, std::size_t live, Random& random) {
  Box& box = boxes[pick(random, box_count)];
  const std::lock_guard guard{box.mutex};
  const std::size_t first = pick(random, live);
  for (std::size_t i = 0; i < box_blocks; ++i) std::swap(box.blocks[i], mine[(first + i) % live]);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Threads that free blocks of each other, 8 to 16,000 bytes."};
  const std::size_t threads = positive(arguments, "threads", 2, "threads");
  const std::size_t operations = positive(arguments, "operations", 3'000'000, "per thread");
  const std::size_t live = positive(arguments, "live", 1'000, "blocks that a thread keeps");
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  const char* const kind = arguments.word("linear|log");
  arguments.finish();
  const bool log = kind != nullptr && std::strcmp(kind, "log") == 0;
  if (kind == nullptr || (!log && std::strcmp(kind, "linear") != 0))
    arguments.fail("needs a distribution of sizes, not", kind == nullptr ? "" : kind);
  if (live < box_blocks) arguments.fail("is at least", "32", "live");

  MappedArray<Block> blocks{threads * live};
  const double seconds = ts::test::run_team(threads, [&](std::uint32_t thread) {
    Random random{seed_of(seed, thread)};
    Block* const mine = &blocks[thread * live];
    for (std::size_t i = 0; i < operations; ++i) {
      if (i % operations_between_swaps == 0) swap_some(mine, live, random);
      Block& block = mine[pick(random, live)];
      give(block);
      block = take(log ? pick_log(random) : pick_linear(random), i);
    }
  });
  for (const Block& block : blocks) give(block);
  for (const Box& box : boxes) {
    for (const Block& block : box.blocks) give(block);
  }
  report(threads * operations, seconds);
  return 0;
}
