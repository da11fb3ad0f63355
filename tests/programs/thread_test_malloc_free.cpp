// Second program of the source reports: threads allocate and free their own blocks. Every block is
// checked before it is freed; blocks live at the end must not overlap.
#include <cstdio>

#include "programs/allocator.h"
#include "programs/support/arguments.h"
#include "programs/support/ledger.h"
#include "programs/support/team.h"

int main(int argc, char** argv) {
  using namespace ts::test;
  Arguments arguments{argc, argv, "Threads allocate, and free their own blocks."};
  const std::size_t threads = arguments.number("threads", 4, "threads");
  const std::size_t allocations = arguments.number("allocations", 20'000, "per thread");
  const std::size_t max_live =
      arguments.number("live", 2'000, "blocks that a thread holds at most");
  const std::size_t max_bytes = arguments.number("max-bytes", 1024, "largest block");
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  arguments.finish();
  if (max_live == 0) arguments.fail("must be positive, not", "0", "live");

  prepare_allocator();
  MappedArray<Holding> ledger{threads * max_live};
  run_team(threads, [&](std::uint32_t thread) {
    Random random{seed_of(seed, thread)};
    for (std::uint32_t i = 0; i < allocations; ++i) {
      Holding& place = ledger[thread * max_live + random.below(max_live)];
      if (place.live()) let_go(release, place);
      place = hold(allocate, random.between(0, max_bytes), thread, i);
      // Half of the blocks are freed at once, so that there are free blocks of all ages.
      if (random.one_in(2)) let_go(release, place);
    }
  });
  const std::size_t live = require_sound(ledger);
  run_team(threads, [&](std::uint32_t thread) {
    for (std::size_t i = 0; i < max_live; ++i) {
      Holding& place = ledger[thread * max_live + i];
      if (place.live()) let_go(release, place);
    }
  });
  std::printf(
      "%s: %zu threads made %zu allocations each, %zu blocks were alive in the end, none "
      "overlap (seed %llu)\n",
      allocator_name, threads, allocations, live, static_cast<unsigned long long>(seed));
  return live > 0 ? 0 : 1;
}
