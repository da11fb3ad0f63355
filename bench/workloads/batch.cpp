// Stresses a free list of one size that goes up and down: a number of blocks are allocated, then
// all are freed in the same order. Leaves out other sizes and, at 64 blocks, everything beyond the
// L1 cache. An operation is a malloc and a free; each block's two ends are written and read.
#include "workload.h"

namespace {
constexpr std::size_t max_blocks = 4096;
ts::bench::Block blocks[max_blocks];
}  // namespace

int main(int argc, char** argv) {
  using namespace ts::bench;
  Arguments arguments{argc, argv, "So many blocks of one size are allocated, then all freed."};
  const std::size_t batches = positive(arguments, "batches", 1'000'000, "one after the other");
  const std::size_t count = positive(arguments, "blocks", 64, "in a batch, at most 4,096");
  const std::size_t bytes = positive(arguments, "bytes", 48, "of a block");
  arguments.finish();
  if (count > max_blocks) arguments.fail("is at most", "4096", "blocks");

  const Stopwatch watch;
  for (std::size_t batch = 0; batch < batches; ++batch) {
    for (std::size_t i = 0; i < count; ++i) blocks[i] = take(bytes, i);
    for (std::size_t i = 0; i < count; ++i) give(blocks[i]);
  }
  report(batches * count, watch.seconds());
  return 0;
}
