// Stresses blocks that one thread allocates and another frees, in streams: producers only allocate,
// consumers only free. A producer distributes its blocks to all consumers at random; with --paired
// 1 each has a consumer of its own (16 pairs, batches of 1,024 and a depth of 10 are the second
// program of a lecture's comparison). With --checked N a consumer reads one in N blocks before
// freeing them, so that the others stay in the producer's cache. Leaves out work in between: no
// real program does only this. An operation is a malloc and a free; each block's two ends are
// written by the producer.
#include "channel.h"
#include "programs/support/team.h"

namespace {

using namespace ts::bench;

struct Setup {
  std::size_t producers;
  std::size_t consumers;
  std::size_t blocks;
  std::size_t batch;
  std::size_t depth;
  std::size_t checked;
  bool paired;
};

constexpr std::size_t max_channels = 64;
Channel channels[max_channels];

// A producer fills one batch for each of its consumers; a consumer empties one at a time.
std::size_t batches_of_producers(const Setup& setup) {
  return setup.producers * (setup.paired ? 1 : setup.consumers);
}

void produce(const Setup& setup, std::size_t producer, const Sizes& sizes, std::uint64_t seed,
             Block* memory) {
  Random random{seed_of(seed, producer)};
  const std::size_t outlets = setup.paired ? 1 : setup.consumers;
  Channel* const outlet = setup.paired ? &channels[producer] : channels;
  Batch batches[max_channels];
  for (std::size_t i = 0; i < outlets; ++i) batches[i] = {memory + i * setup.batch, 0, setup.batch};

  for (std::size_t i = 0; i < setup.blocks; ++i) {
    const std::size_t to = outlets == 1 ? 0 : pick(random, outlets);
    batches[to].add(take(sizes.pick(random), i));
    if (batches[to].full()) outlet[to].send(batches[to]);
  }
  for (std::size_t i = 0; i < outlets; ++i) {
    if (batches[i].count != 0) outlet[i].send(batches[i]);
    outlet[i].end();
  }
}

std::size_t consume(const Setup& setup, std::size_t consumer, Block* memory) {
  Batch batch{memory, 0, setup.batch};
  std::size_t freed = 0;
  while (channels[consumer].receive(batch)) {
    for (std::size_t i = 0; i < batch.count; ++i, ++freed) {
      if (freed % setup.checked == 0) check(batch.blocks[i]);
      std::free(batch.blocks[i].address);
    }
  }
  return freed;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Producers allocate, consumers free."};
  Setup setup{};
  setup.producers = positive(arguments, "producers", 1, "threads, at most 64");
  setup.consumers = positive(arguments, "consumers", 1, "threads, at most 64");
  setup.blocks = positive(arguments, "blocks", 5'000'000, "per producer");
  setup.batch = positive(arguments, "batch", 256, "blocks that go together");
  setup.depth = positive(arguments, "depth", 16, "batches that may wait for a consumer");
  setup.checked = positive(arguments, "checked", 1, "one in so many is read before the free");
  setup.paired = arguments.number("paired", 0, "1: each producer has its consumer") != 0;
  const Sizes sizes{arguments, 16, 271};
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  arguments.finish();
  if (setup.consumers > max_channels || setup.producers > max_channels)
    arguments.fail("are at most", "64");
  if (setup.paired && setup.producers != setup.consumers)
    arguments.fail("needs as many producers as consumers, not", "others", "paired");

  MappedArray<Block> rings{setup.consumers * setup.depth * setup.batch};
  for (std::size_t i = 0; i < setup.consumers; ++i) {
    channels[i].begin(&rings[i * setup.depth * setup.batch], setup.depth, setup.batch,
                      setup.paired ? 1 : setup.producers);
  }
  const std::size_t of_producers = batches_of_producers(setup);
  MappedArray<Block> memory{(of_producers + setup.consumers) * setup.batch};
  MappedArray<std::size_t> freed{setup.consumers};
  const double seconds =
      ts::test::run_team(setup.producers + setup.consumers, [&](std::uint32_t thread) {
        if (thread < setup.producers) {
          const std::size_t first = of_producers / setup.producers * thread;
          produce(setup, thread, sizes, seed, &memory[first * setup.batch]);
        } else {
          const std::size_t consumer = thread - setup.producers;
          freed[consumer] =
              consume(setup, consumer, &memory[(of_producers + consumer) * setup.batch]);
        }
      });
  std::size_t all_freed = 0;
  for (const std::size_t count : freed) all_freed += count;
  if (all_freed != setup.producers * setup.blocks) fail("a block was lost between threads");
  report(all_freed, seconds);
  return 0;
}
