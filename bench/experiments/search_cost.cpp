// Measures the cost of a malloc and a free in a heap with many free blocks. First, --free blocks
// are freed in random order, each of random size and between two that stay; then
//   pair     a block of random size is allocated and freed at once: only the search, with warm
//            caches
//   replace  a random block is freed and another allocated: the search, and cache misses that no
//            search can avoid
// Only the second part is timed. bench/growth times the textbook's linear list on the same blocks.
// Leaves out threads. An operation is a malloc and a free; each block's two ends are written and
// read.
#include "programs/support/heap_snapshot.h"
#include "workload.h"

namespace {

using namespace ts::bench;

// Allocates twice as many blocks as will be free, and frees those at odd places.
void make_free_blocks(MappedArray<Block>& live, const Sizes& sizes, Random& random) {
  MappedArray<Block> gaps{live.size()};
  for (std::size_t i = 0; i < live.size(); ++i) {
    live[i] = take(sizes.pick(random), i);
    gaps[i] = take(sizes.pick(random), i);
  }
  for (std::size_t i = gaps.size(); i > 0; --i) {
    Block& gap = gaps[pick(random, i)];
    give(gap);
    gap = gaps[i - 1];
  }
}

void pair(std::size_t operations, const Sizes& sizes, Random& random) {
  for (std::size_t i = 0; i < operations; ++i) give(take(sizes.pick(random), i));
}

void replace(std::size_t operations, MappedArray<Block>& live, const Sizes& sizes, Random& random) {
  for (std::size_t i = 0; i < operations; ++i) {
    Block& block = live[pick(random, live.size())];
    give(block);
    block = take(sizes.pick(random), i);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "The cost of malloc and free beside many free blocks."};
  const std::size_t blocks = positive(arguments, "free", 10'000, "blocks, at the beginning");
  const std::size_t operations = positive(arguments, "operations", 500'000, "that are timed");
  const Sizes sizes{arguments, 16, 256};
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  const char* const pattern = arguments.word("pair|replace");
  arguments.finish();
  const bool replaces = pattern != nullptr && std::strcmp(pattern, "replace") == 0;
  if (pattern == nullptr || (!replaces && std::strcmp(pattern, "pair") != 0))
    arguments.fail("needs a pattern, not", pattern == nullptr ? "" : pattern);

  Random random{seed};
  MappedArray<Block> live{blocks};
  make_free_blocks(live, sizes, random);

  const Stopwatch watch;
  if (replaces)
    replace(operations, live, sizes, random);
  else
    pair(operations, sizes, random);
  const double seconds = watch.seconds();

  ts::test::heap_snapshot("after the last request");
  for (const Block& block : live) give(block);
  tell_each("seconds_each", seconds, operations);
  report(operations, seconds);
  return 0;
}
