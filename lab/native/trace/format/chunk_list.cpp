// The index; see chunk_list.h. The search is in scan.cpp.
#include "trace/format/chunk_list.h"

#include <utility>

#include "trace/format/bytes.h"
#include "trace/format/compression.h"

namespace ts::trace {
namespace {

// Appends what one chunk of the index lists. False: it fits neither the file nor what came before.
bool append_listed(ByteSpan headers, std::uint64_t index_offset, std::uint64_t& offset,
                   std::vector<Chunk>& chunks) {
  for (; !headers.empty(); headers = headers.subspan(chunk_header_bytes)) {
    const auto header = decode_chunk_header(headers);
    if (!header || find_lie(*header) != nullptr) return false;
    if (header->type == ChunkType::index || chunks.size() == max_chunks) return false;
    chunks.push_back({.offset = offset, .header = *header});
    offset = chunks.back().end();
    if (offset > index_offset) return false;
  }
  return true;
}

}  // namespace

const char* read_payload(const InputFile& file, const Chunk& chunk, Bytes& bytes) {
  const std::size_t size = chunk_header_bytes + std::size_t{chunk.header.coded_bytes};
  if (const char* const why = file.read(chunk.offset, size, bytes)) return why;
  const ByteSpan payload = ByteSpan{bytes}.subspan(chunk_header_bytes);
  return crc32c(payload) == chunk.header.payload_crc ? nullptr : "its checksum is wrong";
}

std::optional<ChunkList> read_index(const InputFile& file) {
  Bytes bytes;
  if (file.size() < file_header_bytes + footer_bytes ||
      file.read(file.size() - footer_bytes, footer_bytes, bytes) != nullptr) {
    return std::nullopt;
  }
  const auto footer = decode_footer(bytes);
  if (!footer) return std::nullopt;

  ChunkList list;
  list.footer = footer;
  list.has_index = true;
  Unpacker unpacker;
  Bytes headers;
  std::uint64_t listed_end = file_header_bytes;
  std::uint64_t at = footer->index_offset;
  for (std::uint32_t i = 0; i < footer->index_chunks; ++i) {
    if (at > file.size() || file.read(at, chunk_header_bytes, bytes) != nullptr) {
      return std::nullopt;
    }
    const auto header = decode_chunk_header(bytes);
    if (!header || header->type != ChunkType::index || find_lie(*header) != nullptr ||
        header->first_event != list.chunks.size()) {
      return std::nullopt;
    }
    const Chunk chunk{.offset = at, .header = *header};
    headers.clear();
    if (read_payload(file, chunk, bytes) != nullptr ||
        !unpacker.append(headers, ByteSpan{bytes}.subspan(chunk_header_bytes),
                         header->plain_bytes) ||
        !append_listed(headers, footer->index_offset, listed_end, list.chunks)) {
      return std::nullopt;
    }
    at = chunk.end();
  }
  const bool fits = listed_end == footer->index_offset && list.chunks.size() == footer->chunks &&
                    at + footer_bytes == file.size();
  if (!fits) return std::nullopt;
  return list;
}

std::string contents_text(const ChunkHeader& header) {
  switch (header.type) {
    case ChunkType::image_begin:
      return "the begin of image " + std::to_string(header.image);
    case ChunkType::events:
      return events_text(header.image, header.first_event, header.count);
    case ChunkType::image_end:
      return "the end of image " + std::to_string(header.image);
    case ChunkType::index:
      return "the index";
  }
  return "what only a later version knows";
}

}  // namespace ts::trace
