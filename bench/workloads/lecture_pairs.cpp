// The first of the two programs of a lecture's comparison: each of 32 threads allocates a block of
// 8 to 512 bytes and frees it at once, again and again. Stresses threads that outnumber the cores,
// and an allocator's reaction when a thread frees its only block. Leaves out everything that
// threads could do to each other's blocks. (The second program is bench-remote with 16 producers
// and 16 consumers; in the lecture its winner lost this one.) An operation is a malloc and a free;
// the block's two ends are written and read.
#include "programs/support/team.h"
#include "workload.h"

int main(int argc, char** argv) {
  using namespace ts::bench;
  Arguments arguments{argc, argv, "Threads that free what they allocate at once."};
  const std::size_t threads = positive(arguments, "threads", 32, "threads");
  const std::size_t pairs = positive(arguments, "pairs", 1'500'000, "per thread");
  const Sizes sizes{arguments, 8, 512};
  const std::uint64_t seed = arguments.number("seed", 1, "of the sizes");
  arguments.finish();

  const double seconds = ts::test::run_team(threads, [&](std::uint32_t thread) {
    Random random{seed_of(seed, thread)};
    for (std::size_t i = 0; i < pairs; ++i) give(take(sizes.pick(random), i));
  });
  report(threads * pairs, seconds);
  return 0;
}
