// The plan of an image and of all that are forked from it; see planner.h.
#include "trace/plan/planner.h"

#include <algorithm>

#include "trace/choose.h"
#include "trace/plan/image_planner.h"

namespace ts::trace {

PlanSummary write_plan(const Reader& reader, const PlanSettings& settings, const std::string& path,
                       bool force) {
  const Image& image = choose_program(reader, settings.image, settings.alone);
  PlanFile file{path, force};
  PlanTree tree{reader, settings, file, {}};
  tree.summary.images.push_back({});
  ImagePlanner first{tree, image, 0, nullptr};
  first.run();
  file.finish(tree.summary.images, settings.window);

  PlanSummary& summary = tree.summary;
  summary.bytes = file.bytes();
  for (const Image& other : reader.images()) {
    const bool is_planned =
        std::any_of(summary.images.begin(), summary.images.end(),
                    [&](const plan::Image& planned) { return planned.number == other.number; });
    if (!is_planned) summary.not_planned.push_back(other.number);
  }
  return summary;
}

}  // namespace ts::trace
