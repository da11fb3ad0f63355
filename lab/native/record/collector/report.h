// The line of JSON that `record` writes; docs/formats/trace.md tells its fields.
#pragma once

#include "launch/child.h"
#include "launch/options.h"
#include "record/collector/session.h"

namespace ts::record {

void write_report(int descriptor, const Options& options, const StartedChild& child,
                  const TraceSink& sink, const Session& session, const Ring& ring);

}  // namespace ts::record
