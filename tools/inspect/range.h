// An address range of a process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ts {

struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  std::size_t bytes() const { return end - begin; }
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
  bool covers(const Range& other) const { return begin <= other.begin && other.end <= end; }
};

}  // namespace ts
