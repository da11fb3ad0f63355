// The hottest loop that a program can have: allocate, touch, free, again. Threads share nothing but
// the allocator. Over malloc, for any allocator by LD_PRELOAD; prints operations per second. It
// refuses to say anything about memory: one block lives at a time.
#include <cstdio>
#include <cstdlib>

#include "programs/support/arguments.h"
#include "programs/support/team.h"

int main(int argc, char** argv) {
  using namespace ts::test;
  Arguments arguments{argc, argv, "malloc and free of one size, at once, in each thread."};
  const std::size_t threads = arguments.number("threads", 1, "threads");
  const std::size_t pairs = arguments.number("pairs", 5'000'000, "per thread");
  const std::size_t bytes = arguments.number("bytes", 64, "of a block");
  arguments.finish();
  if (threads == 0 || pairs == 0) arguments.fail("threads and pairs must be positive, not", "0");

  const double seconds = run_team(threads, [&](std::uint32_t) {
    for (std::size_t i = 0; i < pairs; ++i) {
      auto* volatile block = static_cast<char*>(std::malloc(bytes));
      if (block == nullptr) {
        std::fputs("malloc returned null\n", stderr);
        std::_Exit(1);
      }
      if (bytes != 0) *block = 1;
      std::free(block);
    }
  });
  std::printf("threads: %zu\npairs: %zu\nseconds: %.6f\npairs_per_second: %.0f\n", threads,
              threads * pairs, seconds, static_cast<double>(threads * pairs) / seconds);
  return 0;
}
