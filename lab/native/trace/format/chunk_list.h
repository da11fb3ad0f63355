// Where the chunks of a file are: told by its index, or found by looking at all of it.
//
// Why it exists: opening a whole trace takes one look at its end; one without an end, or with
// damage in it, is searched for what is intact. What it refuses to do: believe an index that does
// not fit the file to the byte, and let chunks overlap: reading them all takes no longer than the
// file is long.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/format/damages.h"
#include "trace/format/input_file.h"
#include "trace/format/layout.h"

namespace ts::trace {

struct Chunk {
  std::uint64_t offset = 0;
  ChunkHeader header;
  bool is_cut = false;  // the file ends, or another chunk begins, before its end; told as a damage

  std::uint64_t payload_offset() const { return offset + chunk_header_bytes; }
  std::uint64_t end() const { return payload_offset() + header.coded_bytes; }
};

struct ChunkList {
  std::vector<Chunk> chunks;     // in the order of the file, without the index
  std::optional<Footer> footer;  // a writer got to the end of its work
  bool has_index = false;        // perhaps a damaged one: all events had been written before
};

// Nothing if there is no footer at the file's end, or no index that fits.
std::optional<ChunkList> read_index(const InputFile& file);

// Searches the file from `begin` on; what belongs to no chunk goes into `damages`.
ChunkList scan(const InputFile& file, std::uint64_t begin, Damages& damages);

// The payload into `bytes`, after the header. Null, or why it cannot be used.
const char* read_payload(const InputFile& file, const Chunk& chunk, Bytes& bytes);

// The contents of a chunk, in words: "events 7 to 9 of image 2 (3)".
std::string contents_text(const ChunkHeader& header);

}  // namespace ts::trace
