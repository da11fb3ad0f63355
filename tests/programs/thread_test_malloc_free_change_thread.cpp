// Third program of the source reports: threads free what other threads allocated, in waves. In each
// wave new threads allocate while they free blocks that another thread, now ended, left behind in
// an earlier wave. Between the waves all live blocks are checked.
#include <cstdio>

#include "programs/allocator.h"
#include "programs/support/arguments.h"
#include "programs/support/ledger.h"
#include "programs/support/team.h"

int main(int argc, char** argv) {
  using namespace ts::test;
  Arguments arguments{argc, argv, "Threads free what other threads allocated, in waves."};
  const std::size_t threads = arguments.number("threads", 4, "threads of each wave");
  const std::size_t allocations = arguments.number("allocations", 4'000, "per thread and wave");
  const std::size_t waves = arguments.number("waves", 5, "waves");
  const std::size_t max_bytes = arguments.number("max-bytes", 1024, "largest block");
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  arguments.finish();
  if (threads < 2) arguments.fail("must be 2 or more, not", "less", "threads");

  prepare_allocator();
  // ledger[wave][thread][allocation]
  MappedArray<Holding> ledger{waves * threads * allocations};
  std::atomic<std::size_t> foreign_frees{0};
  std::size_t live = 0;
  for (std::size_t wave = 0; wave < waves; ++wave) {
    run_team(threads, [&](std::uint32_t thread) {
      Random random{seed_of(seed, wave * threads + thread)};
      const std::size_t my_row = (wave * threads + thread) * allocations;
      // Another thread's row: every wave passes it on by a different distance, never 0.
      const std::size_t giver = (thread + 1 + wave % (threads - 1)) % threads;
      std::size_t freed = 0;
      for (std::uint32_t i = 0; i < allocations; ++i) {
        ledger[my_row + i] = hold(allocate, random.between(0, max_bytes), thread, i);
        if (wave == 0 || random.one_in(4)) continue;  // a quarter survives
        Holding& foreign = ledger[((wave - 1) * threads + giver) * allocations + i];
        let_go(release, foreign);
        ++freed;
      }
      foreign_frees += freed;
    });
    live = require_sound(ledger);
  }
  for (Holding& holding : ledger) {
    if (holding.live()) let_go(release, holding);
  }
  std::printf(
      "%s: %zu waves of %zu threads, %zu blocks freed by another thread than the one that "
      "allocated them, %zu alive in the end, none overlap (seed %llu)\n",
      allocator_name, waves, threads, foreign_frees.load(), live,
      static_cast<unsigned long long>(seed));
  return waves < 2 || foreign_frees > 0 ? 0 : 1;
}
