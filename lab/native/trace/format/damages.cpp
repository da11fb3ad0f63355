// See damages.h.
#include "trace/format/damages.h"

#include <algorithm>
#include <utility>

namespace ts::trace {

void Damages::add(std::uint64_t offset, std::uint64_t bytes, std::uint64_t events,
                  std::string text) {
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

void Damages::sort() {
  std::stable_sort(list_.begin(), list_.end() - (unlisted_ > 0 ? 1 : 0),
                   [](const Damage& a, const Damage& b) { return a.offset < b.offset; });
}

std::string count_text(std::uint64_t count, const char* thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

std::string events_text(std::uint32_t image, std::uint64_t first, std::uint64_t count) {
  const std::string of_image = " of image " + std::to_string(image);
  if (count == 1) return "event " + std::to_string(first) + of_image;
  return "events " + std::to_string(first) + " to " + std::to_string(first + count - 1) + of_image +
         " (" + std::to_string(count) + ")";
}

}  // namespace ts::trace
