// First program of the source reports: threads allocate concurrently. No two blocks may overlap,
// and each must keep what was written into it.
#include <cstdio>

#include "programs/allocator.h"
#include "programs/support/arguments.h"
#include "programs/support/ledger.h"
#include "programs/support/team.h"

int main(int argc, char** argv) {
  using namespace ts::test;
  Arguments arguments{argc, argv, "Threads allocate; no two blocks may overlap."};
  const std::size_t threads = arguments.number("threads", 4, "threads");
  const std::size_t allocations = arguments.number("allocations", 10'000, "per thread");
  const std::size_t max_bytes = arguments.number("max-bytes", 1024, "largest block");
  const std::uint64_t seed = arguments.number("seed", 1, "of the sizes");
  arguments.finish();

  prepare_allocator();
  MappedArray<Holding> ledger{threads * allocations};
  run_team(threads, [&](std::uint32_t thread) {
    Random random{seed_of(seed, thread)};
    for (std::uint32_t i = 0; i < allocations; ++i)
      ledger[thread * allocations + i] = hold(allocate, random.between(0, max_bytes), thread, i);
  });
  const std::size_t live = require_sound(ledger);
  for (Holding& holding : ledger) let_go(release, holding);
  std::printf("%s: %zu threads allocated %zu blocks, none overlap (seed %llu)\n", allocator_name,
              threads, live, static_cast<unsigned long long>(seed));
  return live == threads * allocations ? 0 : 1;
}
