// Any bytes as a program under the engine (play.h): the first chooses how many of the blocks are
// guarded. There is one engine per process, so each input leaves it with all memory free, and goes
// on with the addresses of those before it.
#include <cstdio>

#include "engine/engine.h"
#include "fuzz/history.h"
#include "fuzz/play.h"
#include "fuzz/target.h"
#include "os/options.h"

namespace ts::fuzz {
namespace {

constinit Semantics<engine::Engine> allocator;
std::size_t guarded_blocks = 0;

struct Checks {
  static constexpr bool may_refuse = false;
  static constexpr std::size_t max_bytes = SIZE_MAX;

  // Guarded blocks have pages of their own, which no walk comes to.
  static bool is_apart(const void* block) {
    const bool is_guarded = engine::entry_of(block) == 0;
    if (is_guarded) {
      ++guarded_blocks;
      require(engine::guarded_bytes(block) != 0, "a block is nowhere", block);
    }
    return is_guarded;
  }
  // What other threads have put aside counts as in use.
  static void measures(const HeapMeasures& told, const Walked& walked) {
    require(told.free_bytes <= told.segment_bytes, "more is free than there is");
    require(told.cached_bytes <= told.free_bytes, "more is cached than is free");
    const std::size_t used_bytes = walked.bytes - walked.free_bytes;
    require(told.segment_bytes - told.free_bytes >= used_bytes, "less is in use than is held");
    // One heap for each seat, and one for all that have none.
    require(told.heaps <= Seats::count + 1, "heaps of ended threads are not taken over");
  }
  static void end(const HeapMeasures& told, const Walked& walked) {
    require(walked.used_blocks == 0, "a block is in use that nobody holds");
    require(told.free_bytes == told.segment_bytes, "not all memory is free in the end");
  }
};

}  // namespace

bool report_totals() {
  std::printf(
      "%zu allocations, %zu moves, %zu foreign frees, %lu threads, %zu calls from ending ones, "
      "%zu survived refusals, %zu failures, %zu whole checks, which met %zu guarded blocks\n",
      totals.allocations, totals.moves, totals.foreign_frees, Seats::threads(), totals.late_calls,
      totals.survived, totals.failures, totals.whole_checks, guarded_blocks);
  return totals.moves != 0 && totals.foreign_frees != 0 && Seats::lingered() != 0 &&
         totals.survived != 0 && totals.failures != 0 && guarded_blocks != 0;
}

}  // namespace ts::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  using namespace ts;
  // Its place in the address space is chosen, and its key made, before anything is refused.
  fuzz::allocator.free(fuzz::allocator.malloc(1));
  fuzz::Seats::make_key();
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ts;
  fuzz::History::note(data, size);
  fuzz::Input input{data, size};
  static constexpr std::uint32_t samples[8] = {0, 0, 0, 0, 0, 1, 9, 100};
  current_options.guard_sample = samples[input.byte() % 8];
  fuzz::Play<engine::Engine, fuzz::Checks>{fuzz::allocator, fuzz::Checks{}, input}.run();
  return 0;
}
