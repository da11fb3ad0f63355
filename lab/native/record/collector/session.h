// From the start of the program to the end of its last process: reaping, collecting, flushing, and
// the line of JSON about it. One loop decides when each of these happens.
#pragma once

#include "launch/child.h"
#include "launch/options.h"
#include "launch/tree_end.h"
#include "record/collector/collector.h"
#include "record/collector/trace_sink.h"
#include "record/collector/unrecorded.h"

namespace ts::record {

class Session {
 public:
  Session(const Options& options, const StartedChild& child, RingFile& file, Clock& clock,
          TraceSink& sink);

  // Returns when no process is left, or none that can be ended; the trace is finished.
  void run();

  // Writes the line of JSON; docs/formats/trace.md describes its fields.
  void report(int descriptor, const Options& options, const Ring& ring) const;

 private:
  bool reap();  // false when there is no child left
  void run_due_tasks();
  void wait(std::size_t found);

  const StartedChild& child_;
  Clock& clock_;
  TraceSink& sink_;
  Collector collector_;
  Unrecorded unrecorded_;
  TreeEnd end_;
  Nanoseconds compare_ns_ = 0;
  Nanoseconds flush_ns_ = 0;
  Nanoseconds scan_ns_ = 0;
  int quiet_rounds_ = 0;  // without a record, one after the other
};

}  // namespace ts::record
