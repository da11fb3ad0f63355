// Which image of a trace an analysis is about, and which one a replay is of.
//
// Why it exists: a shell's trace has a hundred images, and one of them did the work. What it
// refuses to do: add images up whose heaps have nothing in common.
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

// Of the images that a plan can begin with (those that were not forked) the one with the most
// events: its own and those of the children that it forks. Null if there is none.
const Image* busiest_program(const Reader& reader);

// The image of that number, or the busiest program. Throws Error for an image that was forked,
// which begins with its parent's objects.
const Image& choose_program(const Reader& reader, std::optional<std::uint32_t> number);

}  // namespace ts::trace
