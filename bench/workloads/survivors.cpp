// Stresses short threads whose blocks outlive them: each allocates some hundred blocks, frees most,
// leaves every tenth on a shelf, and frees the blocks that another thread left on that shelf long
// before. Heaps of ended threads must be found and reused, although a few of their blocks live on;
// if not, memory grows with the number of threads. Leaves out long-lived threads. An operation is a
// malloc and a free; each block's two ends are written and read. live_bytes are those on the
// shelves at the end: with 1,000 full shelves, two working threads add 2% at most.
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "programs/support/heap_snapshot.h"
#include "programs/support/team.h"
#include "workload.h"

namespace {

using namespace ts::bench;

constexpr std::size_t blocks_of_thread = 500;
constexpr std::size_t survivors = blocks_of_thread / 10;

struct Shelf {
  std::mutex mutex;
  Block blocks[survivors];
};
constexpr std::size_t max_shelves = 1024;
Shelf shelves[max_shelves];

void live_shortly(Shelf& shelf, const Sizes& sizes, std::uint64_t seed) {
  Random random{seed};
  Block mine[blocks_of_thread];
  for (std::size_t i = 0; i < blocks_of_thread; ++i) mine[i] = take(sizes.pick(random), i);
  Block left[survivors];
  for (std::size_t i = 0; i < blocks_of_thread; ++i) {
    if (i % 10 == 0)
      left[i / 10] = mine[i];
    else
      give(mine[i]);
  }
  {
    const std::lock_guard guard{shelf.mutex};
    std::swap(shelf.blocks, left);
  }
  for (const Block& block : left) give(block);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Short threads that leave blocks alive."};
  const std::size_t threads = positive(arguments, "threads", 2, "at a time");
  const std::size_t lives = positive(arguments, "lives", 8'000, "threads in all");
  const std::size_t shelf_count =
      positive(arguments, "shelves", 500, "how many threads later, at most 1,024");
  const Sizes sizes{arguments, 16, 527};
  const std::uint64_t seed = arguments.number("seed", 1, "of the sizes");
  arguments.finish();
  if (shelf_count > max_shelves) arguments.fail("are at most", "1024", "shelves");

  std::atomic<std::size_t> born = 0;
  // Each thread of the team starts a thread, waits for its end and starts the next.
  const double seconds = ts::test::run_team(threads, [&](std::uint32_t) {
    for (;;) {
      const std::size_t life = born.fetch_add(1, std::memory_order_relaxed);
      if (life >= lives) return;
      std::thread{live_shortly, std::ref(shelves[life % shelf_count]), std::cref(sizes),
                  seed_of(seed, life)}
          .join();
    }
  });
  ts::test::heap_snapshot("all threads have ended");
  std::size_t live_bytes = 0;
  for (const Shelf& shelf : shelves) {
    for (const Block& block : shelf.blocks) {
      live_bytes += block.bytes;
      give(block);
    }
  }
  tell("live_bytes", live_bytes);
  report(lives * blocks_of_thread, seconds);
  return 0;
}
