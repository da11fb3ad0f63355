// Stresses a heap in its steady state: of a fixed number of live blocks, a random one is freed and
// another allocated in its place. --live decides which cache the heap fits into, --least and --most
// the size of the blocks. Leaves out growth (the first filling is not timed) and any order of
// lifetimes. An operation is a free and a malloc; of each block the first byte, the last byte and
// one byte in each page are written, and the ends are read.
#include "workload.h"

int main(int argc, char** argv) {
  using namespace ts::bench;
  Arguments arguments{argc, argv, "A random one of the live blocks is replaced."};
  const std::size_t operations = positive(arguments, "operations", 10'000'000, "in all");
  const std::size_t live = positive(arguments, "live", 65'536, "blocks");
  const Sizes sizes{arguments, 16, 527};
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  arguments.finish();

  Random random{seed};
  MappedArray<Block> blocks{live};
  for (std::size_t i = 0; i < live; ++i) blocks[i] = take(sizes.pick(random), i);

  const Stopwatch watch;
  for (std::size_t i = 0; i < operations; ++i) {
    Block& block = blocks[pick(random, live)];
    give(block);
    block = take(sizes.pick(random), i);
  }
  report(operations, watch.seconds());
  for (const Block& block : blocks) give(block);
  return 0;
}
