// Traces for tests: made by a writer, or chunk by chunk.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/format.h"

namespace ts::trace::testing {

// Two threads, a forked child, another program; every kind of event.
void write_sample(const std::string& path, std::uint64_t events);

// One frame with this chunk, and a correct checksum.
std::string frame_of(const ChunkHeader& header, const std::string& body);
ChunkHeader header_of(ChunkType type, std::uint32_t image = 0, std::uint32_t count = 0,
                      std::uint64_t first = 0);
std::string transposed(const std::vector<Event>& events);

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

}  // namespace ts::trace::testing
