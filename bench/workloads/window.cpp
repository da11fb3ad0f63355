// Stresses many sizes at once while everything stays in the L1 cache: each block is freed after 64
// later ones have been allocated. Leaves out long lifetimes and disorder: the oldest block is
// always freed first. An operation is a free and a malloc; each block's two ends are written and
// read.
#include "workload.h"

namespace {
constexpr std::size_t max_window = 4096;
ts::bench::Block window[max_window];
}  // namespace

int main(int argc, char** argv) {
  using namespace ts::bench;
  Arguments arguments{argc, argv, "Mixed sizes; the oldest block is freed first."};
  const std::size_t operations = positive(arguments, "operations", 50'000'000, "in all");
  const std::size_t live = positive(arguments, "window", 64, "blocks at a time, at most 4,096");
  const Sizes sizes{arguments, 16, 271};
  const std::uint64_t seed = arguments.number("seed", 1, "of the sizes");
  arguments.finish();
  if (live > max_window) arguments.fail("is at most", "4096", "window");

  Random random{seed};
  std::size_t oldest = 0;
  const Stopwatch watch;
  for (std::size_t i = 0; i < operations; ++i) {
    give(window[oldest]);
    window[oldest] = take(sizes.pick(random), i);
    if (++oldest == live) oldest = 0;
  }
  report(operations, watch.seconds());
  for (const Block& block : window) give(block);
  return 0;
}
