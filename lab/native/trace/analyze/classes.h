// The size classes of allocators, as `usable` found them.
//
// Why it exists: what an allocator would round each request to tells its internal waste on a trace
// without running anything. What it refuses to do: know more of an allocator than its steps.
// Headers, free blocks in slabs and pages that are partly in use are not in here.
//
// The file: lines of words. `allocator NAME` begins one; `run FIRST STEP COUNT SLACK` are COUNT
// classes for requests of up to FIRST, FIRST + STEP, FIRST + 2 STEP... bytes, of which each has
// SLACK bytes more. Runs rise. Beyond the last class, the last run goes on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "usable/steps.h"

namespace ts::trace {

class Classes {
 public:
  using Run = ts::Run;

  Classes(std::string name, std::vector<Run> runs)
      : name_{std::move(name)}, runs_{std::move(runs)} {}

  const std::string& name() const { return name_; }
  // Bytes of the block for a request of this size.
  std::uint64_t usable(std::uint64_t size) const;

 private:
  std::string name_;
  std::vector<Run> runs_;
};

// Throws Error for a file that cannot be read, or is none.
std::vector<Classes> read_classes(const std::string& path);

}  // namespace ts::trace
