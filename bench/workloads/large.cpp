// Stresses large blocks: replaces a random one of a few blocks of 5 to 25 MB. The time depends
// on whether memory comes from the kernel each time or is reused, and the peak on how much is kept
// for later. --touched N limits the use of each block to its first N bytes and its last; then the
// time is that of address space only. Leaves out small blocks in between. An operation is a free
// and a malloc; one byte in each used page is written.
#include "workload.h"

namespace {

using namespace ts::bench;

constexpr std::size_t max_live = 64;
Block blocks[max_live];

// Like take(), but touches only the beginning.
Block take_touched(std::size_t bytes, std::size_t number, std::size_t touched) {
  if (touched >= bytes) return take(bytes, number);
  const Block block{static_cast<unsigned char*>(std::malloc(bytes)),
                    static_cast<std::uint32_t>(bytes), mark_of(number)};
  if (block.address == nullptr) fail("malloc returned null");
  touch(block.address, touched, block.mark);
  block.address[bytes - 1] = block.mark;
  return block;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "A random one of a few large blocks is replaced."};
  const std::size_t operations = positive(arguments, "operations", 100, "in all");
  const std::size_t live = positive(arguments, "live", 8, "blocks, at most 64");
  const Sizes sizes{arguments, 5'000'000, 25'000'000};
  const std::size_t touched =
      positive(arguments, "touched", std::uint64_t{1} << 31, "bytes of each block are used");
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  arguments.finish();
  if (live > max_live) arguments.fail("is at most", "64", "live");

  Random random{seed};
  const Stopwatch watch;
  for (std::size_t i = 0; i < operations; ++i) {
    Block& block = blocks[pick(random, live)];
    give(block);
    block = take_touched(sizes.pick(random), i, touched);
  }
  report(operations, watch.seconds());
  for (const Block& block : blocks) give(block);
  return 0;
}
