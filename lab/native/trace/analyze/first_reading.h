// The first of two readings: when live bytes are highest, and of which objects more is heard.
//
// Why it exists: what a heap holds at its peak can only be looked at once it is known when the peak
// comes; and births need to be kept only of objects that are freed or resized. What it refuses to
// do: anything that the second reading can.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/analyze/histogram.h"
#include "trace/analyze/object_set.h"
#include "trace/analyze/object_sizes.h"
#include "trace/format/reader.h"

namespace ts::trace {

// The inheritance of a forked child: it frees and resizes objects of its ancestors, whose sizes
// only the ancestors' events tell. Where an ancestor is lost, nothing is inherited from it.
struct Inheritance {
  ObjectSizes objects;  // live when the image began
  bool is_complete = true;
};

// Reads the events of all ancestors by fork, each up to the fork. Empty for a root and after an
// exec.
Inheritance inherited_by(const Reader& reader, const Image& image);

struct FirstReading {
  std::vector<Gap> gaps;      // events of the image that cannot be read
  std::uint64_t events = 0;   // that could be read
  std::uint64_t end = 0;      // the number of the last one, plus one
  std::uint64_t last_ns = 0;  // the highest time
  Amount inherited;
  bool knows_inherited = true;
  std::uint64_t peak_bytes = 0;
  std::optional<std::uint64_t> peak_event;  // the first after which that many are live; none: never
                                            // more than in the beginning
  ObjectSet touched;                        // freed or resized by an event of the image; closed
};

FirstReading first_reading(const Reader& reader, const Image& image);

}  // namespace ts::trace
