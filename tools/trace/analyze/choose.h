// Which image of a trace an analysis is about.
//
// Why it exists: a shell's trace has a hundred images, and one of them did the work. What it
// refuses to do: add images up. Each has a heap of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trace/format/reader.h"

namespace ts::trace {

// The image of that number; without one, the image with the most events, the first of several.
// Throws Error if there is none.
const Image& choose_image(const Reader& reader, std::optional<std::uint32_t> number,
                          const std::string& path);

// What follows the last '/'.
std::string base_name(const std::string& path);

}  // namespace ts::trace
