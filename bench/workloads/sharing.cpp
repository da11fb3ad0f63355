// Stresses nothing in malloc but where it puts small blocks: each thread writes its own few blocks
// of 16 bytes again and again, and occasionally replaces one. If blocks of two threads are in one
// cache line, every write takes the line from the other core. `active`: threads allocate at the
// same time; does the allocator itself give parts of one line to several of them? `passive`: the
// first blocks come from the main thread, in turns, so they do share lines, and no allocator can
// avoid that; but when a thread frees such a block, does it get it back for its next one? Leaves
// out the speed of malloc, which is a fraction of a percent here. Needs a core for each thread:
// threads that take turns on one core never contend for a line. An operation is a round: some
// writes to every block, and one replacement; each block's writes are counted and checked.
#include "programs/support/team.h"
#include "workload.h"

namespace {

using namespace ts::bench;

constexpr std::size_t held = 8;

// Volatile, so that every write happens.
struct Counter {
  volatile std::uint64_t writes;
};
static_assert(sizeof(Counter) <= 16, "several of them fit into a cache line");
constexpr std::size_t counter_bytes = 16;

Counter* take_counter() {
  auto* const counter = static_cast<Counter*>(std::malloc(counter_bytes));
  if (counter == nullptr) fail("malloc returned null");
  counter->writes = 0;
  return counter;
}

void give_counter(Counter* counter, std::size_t writes) {
  if (counter->writes != writes) fail("the content of a live block changed");
  std::free(counter);
}

// The first rounds replace the first blocks: each block is written in as many rounds as it lives.
void work(Counter** mine, std::size_t rounds, std::size_t writes) {
  std::size_t born[held] = {};
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < writes; ++i) {
      for (std::size_t k = 0; k < held; ++k) mine[k]->writes = mine[k]->writes + 1;
    }
    const std::size_t oldest = round % held;
    give_counter(mine[oldest], (round + 1 - born[oldest]) * writes);
    mine[oldest] = take_counter();
    born[oldest] = round + 1;
  }
  for (std::size_t k = 0; k < held; ++k) give_counter(mine[k], (rounds - born[k]) * writes);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments{argc, argv, "Do blocks of several threads share cache lines?"};
  const std::size_t threads = positive(arguments, "threads", 2, "threads");
  const std::size_t rounds = positive(arguments, "rounds", 100'000, "per thread");
  const std::size_t writes = positive(arguments, "writes", 200, "to each block in a round");
  const char* const kind = arguments.word("active|passive");
  arguments.finish();
  const bool passive = kind != nullptr && std::strcmp(kind, "passive") == 0;
  if (kind == nullptr || (!passive && std::strcmp(kind, "active") != 0))
    arguments.fail("needs a kind of sharing, not", kind == nullptr ? "" : kind);

  MappedArray<Counter*> first{threads * held};
  for (std::size_t k = 0; k < held && passive; ++k) {
    for (std::size_t thread = 0; thread < threads; ++thread)
      first[thread * held + k] = take_counter();
  }
  const double seconds = ts::test::run_team(threads, [&](std::uint32_t thread) {
    // On the thread's stack: the pointers themselves must not share lines.
    Counter* mine[held];
    for (std::size_t k = 0; k < held; ++k)
      mine[k] = passive ? first[thread * held + k] : take_counter();
    work(mine, rounds, writes);
  });
  report(threads * rounds, seconds);
  return 0;
}
