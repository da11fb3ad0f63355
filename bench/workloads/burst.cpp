// Stresses a heap that fills and empties: a burst of blocks is allocated, then all are freed, in
// the order of allocation, in reverse or at random. The next burst begins with an empty heap.
// Memory that an allocator returns when slabs empty must be fetched again. Leaves out blocks that
// outlive a burst. An operation is a malloc and a free; each block's two ends are written and read.
#include "workload.h"

namespace {

using namespace ts::bench;

// The order in which the blocks of a burst are freed; the same for all bursts.
MappedArray<std::uint32_t>& arrange(MappedArray<std::uint32_t>& order, const char* name) {
  const std::size_t count = order.size();
  const bool reverse = std::strcmp(name, "reverse") == 0;
  for (std::size_t i = 0; i < count; ++i)
    order[i] = static_cast<std::uint32_t>(reverse ? count - 1 - i : i);
  if (std::strcmp(name, "random") != 0) return order;
  Random random{2};
  for (std::size_t i = count - 1; i > 0; --i) {
    const std::size_t other = pick(random, i + 1);
    const std::uint32_t moved = order[i];
    order[i] = order[other];
    order[other] = moved;
  }
  return order;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Bursts of blocks are allocated, then freed."};
  const std::size_t bursts = positive(arguments, "bursts", 400, "one after the other");
  const std::size_t count = positive(arguments, "blocks", 32'768, "in a burst");
  const Sizes sizes{arguments, 16, 271};
  const std::uint64_t seed = arguments.number("seed", 1, "of the sizes");
  const char* const order_name = arguments.word("in-order|reverse|random");
  arguments.finish();
  if (order_name == nullptr ||
      (std::strcmp(order_name, "in-order") != 0 && std::strcmp(order_name, "reverse") != 0 &&
       std::strcmp(order_name, "random") != 0))
    arguments.fail("needs an order of freeing, not", order_name == nullptr ? "" : order_name);

  Random random{seed};
  MappedArray<Block> blocks{count};
  MappedArray<std::uint32_t> places{count};
  const MappedArray<std::uint32_t>& order = arrange(places, order_name);
  const Stopwatch watch;
  for (std::size_t burst = 0; burst < bursts; ++burst) {
    for (std::size_t i = 0; i < count; ++i) blocks[i] = take(sizes.pick(random), i);
    for (const std::uint32_t place : order) give(blocks[place]);
  }
  report(bursts * count, watch.seconds());
  return 0;
}
