// The list of what is wrong with a file.
//
// Why it exists: a file can be damaged in a million places, and a report of them must stay small.
// What it refuses to do: forget lost events; what is beyond the limit is summed up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ts::trace {

struct Damage {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t bytes = 0;   // that cannot be used; 0 where something is missing
  std::uint64_t events = 0;  // lost, as far as is known
  std::string text;          // what is wrong, what is lost, what to do
};

class Damages {
 public:
  static constexpr std::size_t most = 1'000;  // the last of which sums up the others

  void add(std::uint64_t offset, std::uint64_t bytes, std::uint64_t events, std::string text);
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
