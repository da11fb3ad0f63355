// Stresses a server whose threads come and go (after an idea of Larson and Krishnan, 1998): each
// thread replaces random blocks of a slice, some thousand of them. Then it starts a new thread,
// leaves slice and blocks to it, and ends. So most blocks are freed by another thread than the one
// that allocated them, which has often ended by then. Leaves out exchange between threads that live
// at the same time. An operation is a free and a malloc; each block's two ends are written and
// read.
#include <functional>
#include <latch>
#include <thread>

#include "workload.h"

namespace {

using namespace ts::bench;

constexpr std::size_t max_threads = 64;

// The data that a thread leaves to its successor.
struct alignas(128) Slice {
  Block* blocks;
  std::size_t live;
  std::size_t operations;   // of each thread
  std::size_t generations;  // still to run, this one included
  const Sizes* sizes;
  std::uint64_t seed;
};

// Static, like `ended`: the last thread of a line may not have ended yet when main returns.
Slice slices[max_threads];

// Threads are detached, since none is joined: the last of each line counts down.
void serve(Slice& slice, std::latch& ended) {
  Random random{seed_of(slice.seed, slice.generations)};
  for (std::size_t i = 0; i < slice.operations; ++i) {
    Block& block = slice.blocks[pick(random, slice.live)];
    give(block);
    block = take(slice.sizes->pick(random), i);
  }
  if (--slice.generations == 0)
    ended.count_down();
  else
    std::thread{serve, std::ref(slice), std::ref(ended)}.detach();
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Threads that end and leave their blocks to a new one."};
  const std::size_t threads = positive(arguments, "threads", 2, "at a time, at most 64");
  const std::size_t generations = positive(arguments, "generations", 300, "of threads");
  const std::size_t operations = positive(arguments, "operations", 10'000, "of each thread");
  const std::size_t live = positive(arguments, "live", 5'000, "blocks in a slice");
  const Sizes sizes{arguments, 8, 1000};
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  arguments.finish();
  if (threads > max_threads) arguments.fail("are at most", "64", "threads");

  // The main thread allocates the first blocks, like a server that initialises itself.
  MappedArray<Block> blocks{threads * live};
  Random random{seed};
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = take(sizes.pick(random), i);

  static std::latch ended{static_cast<std::ptrdiff_t>(threads)};
  const Stopwatch watch;
  for (std::size_t i = 0; i < threads; ++i) {
    slices[i] = {&blocks[i * live], live, operations, generations, &sizes, seed_of(seed, i)};
    std::thread{serve, std::ref(slices[i]), std::ref(ended)}.detach();
  }
  ended.wait();
  report(threads * generations * operations, watch.seconds());
  for (const Block& block : blocks) give(block);
  return 0;
}
