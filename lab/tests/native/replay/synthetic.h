// Traces whose every figure is known, since they are made up.
//
// A plan must be held against something that no planner has touched. Objects wander between
// threads, threads come and go, images fork, and all of it follows from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "replay/plan.h"
#include "trace/format.h"

namespace ts::replay::testing {

struct Recipe {
  std::uint64_t seed = 1;
  std::uint64_t events = 10'000;     // of the first image
  std::uint32_t threads = 4;         // alive at the same time, at most
  std::uint64_t live_objects = 500;  // about which their number moves
  std::uint64_t max_bytes = 2'000;   // of an object
  bool has_aligned = true;           // some objects are aligned, up to a page
  bool threads_end = true;
  std::uint32_t forks = 0;        // of the first image; each child has a tenth of its events
  std::uint32_t execs = 0;        // images that the first one becomes or starts; likewise
  std::uint64_t exec_events = 0;  // of each of these; 0: a tenth, too
  bool everybody_shares = true;   // any thread frees and resizes any object
  std::uint64_t ns_per_event = 1'000;
};

// Of one image, as plan::Image has them.
struct Expected {
  std::uint32_t number = 0;
  plan::Totals totals = {};
  std::uint64_t events = 0;
  std::uint64_t live_bytes = 0;
  std::uint64_t live_objects = 0;
  std::uint64_t peak_live_bytes = 0;
  std::vector<trace::Event> calls;  // in order; only if asked for
};

// Writes the trace, over whatever is there. By number of image.
std::vector<Expected> write_synthetic(const std::string& path, const Recipe& recipe,
                                      bool keep_calls = false);

}  // namespace ts::replay::testing
