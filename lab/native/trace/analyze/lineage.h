// What a forked child inherits.
//
// Why it exists: a child frees and resizes objects of its ancestors, whose sizes only the
// ancestors' events tell. What it refuses to do: guess. Where an ancestor is lost, nothing is
// inherited from it, and is_complete tells.
#pragma once

#include "trace/analyze/object_sizes.h"
#include "trace/format/reader.h"

namespace ts::trace {

struct Inheritance {
  ObjectSizes objects;  // live when the image began
  bool is_complete = true;
};

// Reads the events of all ancestors by fork, each up to the fork. Empty for a root and after an
// exec.
Inheritance inherited_by(const Reader& reader, const Image& image);

}  // namespace ts::trace
