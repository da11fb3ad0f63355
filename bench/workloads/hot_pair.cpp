// Stresses the hottest path of an allocator: one block of one size, freed at once, again and again,
// in one thread. Leaves out everything else: one block lives at a time, so nothing is ever
// searched, filled up or returned. An operation is a malloc and a free; the block's two ends are
// written and read.
#include "workload.h"

int main(int argc, char** argv) {
  using namespace ts::bench;
  Arguments arguments{argc, argv, "malloc and free of one size, at once."};
  const std::size_t pairs = positive(arguments, "pairs", 80'000'000, "of malloc and free");
  const std::size_t bytes = positive(arguments, "bytes", 64, "of a block");
  arguments.finish();

  const Stopwatch watch;
  for (std::size_t i = 0; i < pairs; ++i) give(take(bytes, i));
  report(pairs, watch.seconds());
  return 0;
}
