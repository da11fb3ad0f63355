// Interprets any bytes as a program under the engine (play.h); the first byte chooses how many of
// the blocks are guarded. There is one engine per process, so each input frees all memory, and
// starts with the address range that earlier inputs left.
#include <cstdio>

#include "engine/engine.h"
#include "fuzz/play.h"
#include "fuzz/target.h"
#include "os/options.h"

namespace ts::fuzz {
namespace {

constinit LibcRules<engine::Engine> allocator;
std::size_t guarded_blocks = 0;

struct EngineChecks : Checks {
  // Guarded blocks have pages of their own, which no walk reaches.
  static bool is_apart(const void* block) {
    const bool is_guarded = engine::entry_of(block) == 0;
    if (is_guarded) {
      ++guarded_blocks;
      require(engine::hooks::foreign_bytes(block) != 0, "a block is nowhere", block);
    }
    return is_guarded;
  }
  // Frees deferred by other threads count as in use.
  static void measures(const HeapMeasures& told, const Walked& walked) {
    Checks::measures(told, walked);
    // One heap for each seat, and one for all threads without a heap.
    require(told.heaps <= Seats::count + 1, "heaps of ended threads are not taken over");
  }
};

}  // namespace

bool report_totals() {
  print_totals();
  std::printf(", which met %zu guarded blocks\n", guarded_blocks);
  return totals_are_complete() && guarded_blocks != 0;
}

}  // namespace ts::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  ts::current_options.background = ts::Background::off;  // inputs do its work, when they ask for it
  ts::fuzz::make_ready(ts::fuzz::allocator);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ts;
  fuzz::Input input{data, size};
  static constexpr std::uint32_t samples[8] = {0, 0, 0, 0, 0, 1, 9, 100};
  current_options.guard_sample = samples[input.byte() % 8];
  fuzz::Play<engine::Engine, fuzz::EngineChecks>{fuzz::allocator, input}.run();
  return 0;
}
