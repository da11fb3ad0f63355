// A memory control group for one run, where the system lets us have one.
//
// Why it exists: the kernel's own peak of a group counts the whole tree without sampling: the
// cross-check for our sampled sums (it counts page cache and kernel memory too, so it is an upper
// neighbour, not the same number). What it refuses to do: leave the group that we were put into. It
// makes a child of that group, never a sibling, so that every limit on us still holds for the
// program; where that is not allowed there is no group, and no error.
#pragma once

#include <limits.h>

#include <cstdint>

namespace ts {

class PrivateCgroup {
 public:
  // Tries to make the group. It is removed by remove(), which wants every process in it to have
  // ended.
  PrivateCgroup();
  ~PrivateCgroup();
  PrivateCgroup(const PrivateCgroup&) = delete;
  PrivateCgroup& operator=(const PrivateCgroup&) = delete;

  // Writing "0" there moves the writer in; -1 when there is no group.
  int join_descriptor() const { return join_descriptor_; }

  std::int64_t peak_bytes() const;  // -1 when there is no group
  void remove();

 private:
  bool make_under(const char* parent, const char* peak_file);

  int join_descriptor_ = -1;
  char directory_[PATH_MAX] = {};
  char peak_path_[PATH_MAX + 64] = {};
};

}  // namespace ts
