// Small programs over the engine's own code for blocks that change threads: remote_frees, reclaim,
// refill, slabs, cache bins and the paths of thread_heap. Heaps, slabs and the page map are
// hand-built, and the page heap is a double that records what is retired.
#pragma once

#include <string_view>
#include <vector>

#include "checker.h"

namespace ts::testing {

struct NamedScenario {
  std::string_view name;
  Scenario scenario;
  Limits limits;
  unsigned cuts = 0;  // how many of the last stores a cut may lose; 0: no cuts
};
const std::vector<NamedScenario>& engine_scenarios();

// Explores one scenario, with all of its cuts.
Outcome run(const NamedScenario& scenario);

}  // namespace ts::testing
