// The line of JSON that replay writes. lab/native/README.md explains its fields.
#pragma once

#include "replay/image_run.h"
#include "replay/settings.h"

namespace ts::replay {

// Whether the image made the plan's calls, and found its blocks intact.
bool is_right(const plan::Image& image, const ImageResult& result);

// Returns 0, or the number of the write error. first: the run of the first image.
int write_report(int descriptor, const ReplayContext& context, const Request& request,
                 const ImageRun& first);

}  // namespace ts::replay
