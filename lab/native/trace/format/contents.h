// What the chunks of a file hold in all: its images, and for each the chunks of its events in
// order.
//
// Why it exists: which events are lost follows from those that are there: their numbers have no
// gaps. What it refuses to do: read events; a chunk that is damaged inside is only found when it
// is read.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/format/chunk_list.h"
#include "trace/format/damages.h"
#include "trace/format/event.h"
#include "trace/format/input_file.h"

namespace ts::trace {

struct ImageChunks {
  std::vector<std::uint32_t> events;  // positions in the list of chunks
  std::uint64_t events_end = 0;       // how many events there were, as far as is known
  bool is_end_known = false;          // there were no others
};

// In step: images[i]'s chunks are chunks[i].
struct Contents {
  std::vector<Image> images;  // by number
  std::vector<ImageChunks> chunks;
};

Contents read_contents(const InputFile& file, const ChunkList& list, Damages& damages);

}  // namespace ts::trace
