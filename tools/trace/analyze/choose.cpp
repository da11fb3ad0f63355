// See choose.h.
#include "trace/analyze/choose.h"

#include <algorithm>

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
  throw Error(path + " has no image " + std::to_string(*number) +
              ". `trace info` lists those that it has.");
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace ts::trace
