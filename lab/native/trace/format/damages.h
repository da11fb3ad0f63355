// The list of what is wrong with a file.
//
// Why it exists: a file can be damaged in a million places, and a report of them must stay small.
// What it refuses to do: forget lost events; what is beyond the limit is summed up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/format/reader.h"

namespace ts::trace {

class Damages {
 public:
  void add(Damage damage);
  // In the order of the file.
  void sort();
  const std::vector<Damage>& list() const { return list_; }

 private:
  std::vector<Damage> list_;
  std::uint64_t unlisted_ = 0;
};

// "3 events", "1 event".
std::string count_text(std::uint64_t count, const char* thing);
// "events 7 to 9 of image 2 (3 events)", "event 7 of image 2".
std::string events_text(std::uint32_t image, std::uint64_t first, std::uint64_t count);

}  // namespace ts::trace
