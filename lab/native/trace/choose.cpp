#include "trace/choose.h"

#include <algorithm>
#include <vector>

namespace ts::trace {

const Image& choose_image(const Reader& reader, std::optional<std::uint32_t> number,
                          const std::string& path) {
  const std::vector<Image>& images = reader.images();
  if (images.empty()) {
    throw Error(path + " holds no image that can be read. `trace check` says what is lost.");
  }
  if (!number) {
    return *std::max_element(
        images.begin(), images.end(),
        [](const Image& one, const Image& other) { return one.events < other.events; });
  }
  if (const Image* const image = reader.find_image(*number)) return *image;
  throw Error(path + " has no image " + std::to_string(*number) + "; the last is " +
              std::to_string(images.back().number) + ".");
}

const Image* busiest_program(const Reader& reader) {
  const std::vector<Image>& images = reader.images();
  if (images.empty()) return nullptr;
  // A child's number is above its parent's, so that each sum is whole when it is passed on.
  std::vector<std::uint64_t> events(std::size_t{images.back().number} + 1);
  const Image* busiest = nullptr;
  for (auto image = images.rbegin(); image != images.rend(); ++image) {
    const std::uint64_t sum = events[image->number] += image->events;
    if (image->birth != Image::Birth::fork) {
      if (busiest == nullptr || sum >= events[busiest->number]) busiest = &*image;
    } else if (image->parent < image->number) {
      events[image->parent] += sum;
    }
  }
  return busiest;
}

const Image& choose_program(const Reader& reader, std::optional<std::uint32_t> number) {
  if (!number) {
    if (const Image* const busiest = busiest_program(reader)) return *busiest;
    throw Error("the trace has no image that a plan can begin with. `trace check` tells more.");
  }
  const Image& image = choose_image(reader, number, "the trace");
  if (image.birth != Image::Birth::fork) return image;
  throw Error("image " + std::to_string(image.number) +
              " was forked and begins with its parent's objects: plan image " +
              std::to_string(image.parent) + ", which forks it.");
}

}  // namespace ts::trace
