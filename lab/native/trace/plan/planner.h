// From a trace to a plan: what `replay` executes (replay/plan.h).
//
// Why it exists: see plan.h; here is what it takes to make one. A trace is read twice, from its
// first event to its last, and never held: memory is 4 bytes for each object that the image makes
// and 12 for each that is live at the peak. What it refuses to do: invent. Events that cannot be
// replayed are left out, and told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "replay/plan.h"
#include "trace/format/reader.h"

namespace ts::trace {

struct PlanSettings {
  std::optional<std::uint32_t> image =
      std::nullopt;  // number in the trace; without one, choose_program's
  std::uint64_t window = 1'000;
  bool with_times = false;
};

struct PlanSummary {
  std::vector<plan::Image> images;         // in the plan
  std::vector<std::uint32_t> not_planned;  // numbers of images of the trace that are not in it
  std::uint64_t bytes = 0;                 // of the file
  bool has_gaps = false;                   // the trace is damaged, and events are missing
};

// Throws Error. Refuses to overwrite a file unless `force` is set.
PlanSummary write_plan(const Reader& reader, const PlanSettings& settings, const std::string& path,
                       bool force);

}  // namespace ts::trace
