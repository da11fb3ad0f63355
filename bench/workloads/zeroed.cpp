// Stresses calloc of 4 KB to 1 MB: a random live block is replaced by a zeroed one, with all
// octaves of sizes equally likely. Fresh pages of the kernel are zero, used ones are not: an
// allocator that remembers which is which need not write. Leaves out small blocks, where zeroing
// costs nothing. An operation is a free and a calloc; of each block one byte in each page and the
// last are checked to be zero, then written.
#include "workload.h"

namespace {

using namespace ts::bench;

constexpr std::size_t max_live = 4096;
Block blocks[max_live];

constexpr std::size_t least_octave = 12;
constexpr std::size_t octaves = 8;

std::size_t pick_size(Random& random) {
  const std::size_t octave = std::size_t{1} << (least_octave + pick(random, octaves));
  return octave + pick(random, octave);
}

// Requests elements of 16 bytes.
Block take_zeroed(std::size_t bytes, std::size_t number) {
  constexpr std::size_t element_bytes = 16;
  const std::size_t elements = bytes / element_bytes;
  const Block block{static_cast<unsigned char*>(std::calloc(elements, element_bytes)),
                    static_cast<std::uint32_t>(elements * element_bytes), mark_of(number)};
  if (block.address == nullptr) fail("calloc returned null");
  unsigned char sum = block.address[block.bytes - 1];
  for (std::size_t at = 0; at < block.bytes; at += touched_page_bytes) sum |= block.address[at];
  if (sum != 0) fail("calloc returned memory that is not zero");
  touch(block.address, block.bytes, block.mark);
  return block;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "A random one of the live blocks is replaced by a zeroed one."};
  const std::size_t operations = positive(arguments, "operations", 10'000, "in all");
  const std::size_t live = positive(arguments, "live", 64, "blocks, at most 4,096");
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  arguments.finish();
  if (live > max_live) arguments.fail("is at most", "4096", "live");

  Random random{seed};
  const Stopwatch watch;
  for (std::size_t i = 0; i < operations; ++i) {
    Block& block = blocks[pick(random, live)];
    give(block);
    block = take_zeroed(pick_size(random), i);
  }
  report(operations, watch.seconds());
  for (const Block& block : blocks) give(block);
  return 0;
}
