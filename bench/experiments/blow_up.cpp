// Measures how much memory an allocator needs although no more blocks are live than before: in each
// round one thread allocates some megabytes and another frees all of them, so the live total never
// grows.
//   one-way  always the first thread allocates and the second frees: freed memory must return from
//            the second to the first, or each round needs fresh memory
//   circle   the thread that allocates is the next one in each round, and the one after it frees: a
//            heap that keeps what its thread once had needs the memory once for each thread
// (Both are classics: Berger et al., "Hoard", 2000, call the first unbounded blow-up and bound the
// second.) Only one thread works at a time, so every run does exactly the same. Leaves out
// concurrency. An operation is a malloc and a free; of each block one byte in each page and the
// last are written, and the ends are read.
#include <barrier>

#include "programs/support/heap_snapshot.h"
#include "programs/support/team.h"
#include "workload.h"

namespace {

using namespace ts::bench;

std::size_t fill(MappedArray<Block>& blocks, const Sizes& sizes, std::uint64_t seed) {
  Random random{seed};
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = take(sizes.pick(random), i);
    bytes += blocks[i].bytes;
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv,
                      "One thread allocates, another frees, and live memory is bounded."};
  const std::size_t rounds = positive(arguments, "rounds", 10, "one after the other");
  const std::size_t threads = positive(arguments, "threads", 4, "of the circle, at least 2");
  const std::size_t count = positive(arguments, "blocks", 32'768, "of a round");
  const Sizes sizes{arguments, 16, 1'008};
  const std::uint64_t seed = arguments.number("seed", 1, "of the sizes");
  const char* const pattern = arguments.word("one-way|circle");
  arguments.finish();
  const bool circle = pattern != nullptr && std::strcmp(pattern, "circle") == 0;
  if (pattern == nullptr || (!circle && std::strcmp(pattern, "one-way") != 0))
    arguments.fail("needs a pattern, not", pattern == nullptr ? "" : pattern);
  if (threads < 2) arguments.fail("are at least", "2", "threads");

  MappedArray<Block> blocks{count};
  std::size_t live_bytes = 0;  // in the round that has most
  std::barrier step{static_cast<std::ptrdiff_t>(threads)};
  const double seconds = ts::test::run_team(threads, [&](std::uint32_t thread) {
    for (std::size_t round = 0; round < rounds; ++round) {
      const std::size_t giver = circle ? round % threads : 0;
      if (thread == giver) {
        const std::size_t bytes = fill(blocks, sizes, seed_of(seed, round));
        if (bytes > live_bytes) live_bytes = bytes;
        if (round + 1 == rounds) ts::test::heap_snapshot("the last round's blocks live");
      }
      step.arrive_and_wait();
      if (thread == (giver + 1) % threads) {
        for (const Block& block : blocks) give(block);
      }
      step.arrive_and_wait();
    }
  });
  tell("live_bytes", live_bytes);
  report(rounds * count, seconds);
  return 0;
}
