// What servers do: threads that each keep a working set of blocks of mixed sizes, replace them in
// random order, and hand some over to the next thread, which frees them. Over malloc, for any
// allocator by LD_PRELOAD; prints operations per second. It refuses to check contents: that is the
// stress test's business.
#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "programs/support/arguments.h"
#include "programs/support/mapped_array.h"
#include "programs/support/random.h"
#include "programs/support/team.h"

namespace {

using namespace ts::test;

// A hand-over from one thread to the next: whoever finds a block in it must free it.
struct alignas(128) Handover {
  std::atomic<void*> block;
};

// Nine of ten requests are small, as in most programs.
std::size_t mixed_bytes(Random& random) {
  const std::size_t kind = random.below(100);
  if (kind < 90) return random.between(1, 256);
  return kind < 99 ? random.between(257, 4096) : random.between(4097, 65536);
}

void* allocate(std::size_t bytes) {
  auto* const block = static_cast<char*>(std::malloc(bytes));
  if (block == nullptr) {
    std::fputs("malloc returned null\n", stderr);
    std::_Exit(1);
  }
  block[0] = block[bytes - 1] = 1;
  return block;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Mixed sizes in each thread, some freed by the next thread."};
  const std::size_t threads = arguments.number("threads", 4, "threads");
  const std::size_t operations = arguments.number("operations", 1'000'000, "per thread");
  const std::size_t live = arguments.number("live", 2'000, "blocks that a thread keeps");
  const std::size_t handed = arguments.number("handed", 10, "in a hundred go to the next thread");
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  arguments.finish();
  if (threads == 0 || operations == 0 || live == 0)
    arguments.fail("threads, operations and live must be positive, not", "0");
  if (handed > 100) arguments.fail("is a share of a hundred, not", "more", "handed");

  MappedArray<void*> blocks{threads * live};
  MappedArray<Handover> handovers{threads};
  const double seconds = run_team(threads, [&](std::uint32_t thread) {
    Random random{seed_of(seed, thread)};
    std::atomic<void*>& to_next = handovers[(thread + 1) % threads].block;
    std::atomic<void*>& to_me = handovers[thread].block;
    for (std::size_t i = 0; i < operations; ++i) {
      void*& place = blocks[thread * live + random.below(live)];
      // acq_rel: what one thread wrote into the block comes before the other thread's free
      void* mine =
          random.below(100) < handed ? to_next.exchange(place, std::memory_order_acq_rel) : place;
      std::free(mine);
      if (to_me.load(std::memory_order_relaxed) != nullptr)
        std::free(to_me.exchange(nullptr, std::memory_order_acq_rel));
      place = allocate(mixed_bytes(random));
    }
  });
  for (void* block : blocks) std::free(block);
  for (Handover& handover : handovers) std::free(handover.block.load(std::memory_order_relaxed));
  std::printf(
      "threads: %zu\noperations: %zu\nseed: %llu\nseconds: %.6f\noperations_per_second: %.0f\n",
      threads, threads * operations, static_cast<unsigned long long>(seed), seconds,
      static_cast<double>(threads * operations) / seconds);
  return 0;
}
