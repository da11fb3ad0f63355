// The analysis as one line of JSON, schema "tsmalloc-analysis/1"; docs/formats/trace.md lists its
// fields.
//
// Why it exists: tables and figures are Python's affair; every number that they show is here. What
// it refuses to do: compute.
#pragma once

#include <string>
#include <vector>

#include "common/json_line.h"
#include "trace/analyze/analysis.h"
#include "trace/analyze/classes.h"
#include "trace/analyze/first_reading.h"
#include "trace/format/reader.h"

namespace ts::trace {

struct Report {
  std::string trace;  // base name of the file
  const Reader& reader;
  const Image& image;
  const FirstReading& first;
  const Analysis& analysis;
  const std::vector<Classes>& classes;
};

void write_report(JsonLine& line, const Report& report);

}  // namespace ts::trace
