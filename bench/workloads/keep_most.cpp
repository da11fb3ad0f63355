// Stresses a heap that only grows, like a compiler's or a loader's: of ten small blocks, nine are
// kept to the end, and the tenth is freed a while later and leaves a hole. The time is as much page
// faults as malloc; the peak shows what a small block really takes. Leaves out the end: the kept
// blocks are checked, never freed, as in such programs. An operation is a malloc; of each block the
// first 16 bytes and the last are written.
#include "workload.h"

namespace {

using namespace ts::bench;

// How a kept block begins: all kept ones are linked into a list, so that this program keeps nothing
// outside the heap.
struct Kept {
  Kept* before;
  std::uint32_t bytes;
  std::uint32_t number;
};

Kept* keep(std::size_t bytes, std::size_t number, Kept* before) {
  const Block block = take(bytes, number);
  auto* const kept = reinterpret_cast<Kept*>(block.address);
  *kept = {before, block.bytes, static_cast<std::uint32_t>(number)};
  return kept;
}

std::size_t count_intact(const Kept* last) {
  std::size_t count = 0;
  for (const Kept* kept = last; kept != nullptr; kept = kept->before, ++count) {
    if (reinterpret_cast<const unsigned char*>(kept)[kept->bytes - 1] != mark_of(kept->number))
      fail("the content of a kept block changed");
  }
  return count;
}

constexpr std::size_t least_bytes = sizeof(Kept) + 8;
constexpr std::size_t size_count = 96;
constexpr std::size_t passing_blocks = 1024;
Block passing[passing_blocks];

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "A growing heap: nine of ten small blocks are kept to the end."};
  const std::size_t operations = positive(arguments, "operations", 4'000'000, "in all");
  const std::uint64_t seed = arguments.number("seed", 1, "of sizes and order");
  arguments.finish();

  Random random{seed};
  Kept* last = nullptr;
  std::size_t kept = 0;
  const Stopwatch watch;
  for (std::size_t i = 0; i < operations; ++i) {
    const std::size_t bytes = least_bytes + pick(random, size_count);
    if (i % 10 != 9) {
      last = keep(bytes, i, last);
      ++kept;
      continue;
    }
    Block& place = passing[pick(random, passing_blocks)];
    give(place);
    place = take(bytes, i);
  }
  report(operations, watch.seconds());
  if (count_intact(last) != kept) fail("a kept block was lost");
  return 0;
}
