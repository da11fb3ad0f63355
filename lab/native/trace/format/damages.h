// The list of damages of a file.
//
// Why it exists: a file can be damaged in a million places, and a report of them must stay small.
// What it refuses to do: forget lost events; those beyond the limit are summed up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
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

  void add(std::uint64_t offset, std::uint64_t bytes, std::uint64_t events, std::string text) {
    if (list_.size() < most) {
      list_.push_back({offset, bytes, events, std::move(text)});
      return;
    }
    Damage& last = list_.back();
    if (unlisted_ == 0) unlisted_ = 1;
    ++unlisted_;
    last.bytes += bytes;
    last.events += events;
    last.text = "and " + std::to_string(unlisted_) +
                " more places: the file is damaged all over. Copy it once more from where it was "
                "recorded.";
  }

  // In the order of the file.
  void sort() {
    std::stable_sort(list_.begin(), list_.end() - (unlisted_ > 0 ? 1 : 0),
                     [](const Damage& a, const Damage& b) { return a.offset < b.offset; });
  }

  const std::vector<Damage>& list() const { return list_; }

 private:
  std::vector<Damage> list_;
  std::uint64_t unlisted_ = 0;
};

// "3 events", "1 event".
inline std::string count_text(std::uint64_t count, const char* thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

// "events 7 to 9 of image 2 (3 events)", "event 7 of image 2".
inline std::string events_text(std::uint32_t image, std::uint64_t first, std::uint64_t count) {
  const std::string of_image = " of image " + std::to_string(image);
  if (count == 1) return "event " + std::to_string(first) + of_image;
  return "events " + std::to_string(first) + " to " + std::to_string(first + count - 1) + of_image +
         " (" + std::to_string(count) + ")";
}

}  // namespace ts::trace
