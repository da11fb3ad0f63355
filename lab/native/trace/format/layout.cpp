// See layout.h.
#include "trace/format/layout.h"

#include <algorithm>
#include <cstring>

#include "trace/format/columns.h"
#include "trace/format/crc32c.h"

namespace ts::trace {
namespace {

template <std::size_t size>
bool begins_with(ByteSpan bytes, const std::array<std::uint8_t, size>& magic) {
  return bytes.size() >= size && std::memcmp(bytes.data(), magic.data(), size) == 0;
}

// The last four bytes of a part are the checksum of those before.
void seal(std::uint8_t* part, std::size_t size) {
  store(part + size - 4, crc32c({part, size - 4}));
}

bool is_sealed(ByteSpan part) {
  return load<std::uint32_t>(part.data() + part.size() - 4) == crc32c(part.first(part.size() - 4));
}

}  // namespace

std::array<std::uint8_t, file_header_bytes> encode(const FileHeader& header) {
  std::array<std::uint8_t, file_header_bytes> bytes{};
  std::copy(file_magic.begin(), file_magic.end(), bytes.begin());
  store(&bytes[8], header.version);
  seal(bytes.data(), bytes.size());
  return bytes;
}

std::optional<FileHeader> decode_file_header(ByteSpan bytes) {
  if (bytes.size() < file_header_bytes || !begins_with(bytes, file_magic) ||
      !is_sealed(bytes.first(file_header_bytes))) {
    return std::nullopt;
  }
  return FileHeader{.version = load<std::uint32_t>(&bytes[8])};
}

void encode(const ChunkHeader& header, std::uint8_t* to) {
  std::copy(chunk_magic.begin(), chunk_magic.end(), to);
  store(to + 4, static_cast<std::uint32_t>(header.type));
  store(to + 8, header.image);
  store(to + 12, header.count);
  store(to + 16, header.objects);
  store(to + 20, header.threads);
  store(to + 24, header.first_event);
  store(to + 32, header.first_object);
  store(to + 40, header.first_time_ns);
  store(to + 48, header.last_time_ns);
  store(to + 56, header.plain_bytes);
  store(to + 60, header.coded_bytes);
  store(to + 64, header.payload_crc);
  store(to + 68, std::uint64_t{0});
  seal(to, chunk_header_bytes);
}

std::optional<ChunkHeader> decode_chunk_header(ByteSpan bytes) {
  if (bytes.size() < chunk_header_bytes || !begins_with(bytes, chunk_magic) ||
      !is_sealed(bytes.first(chunk_header_bytes))) {
    return std::nullopt;
  }
  const std::uint8_t* const from = bytes.data();
  return ChunkHeader{.type = static_cast<ChunkType>(from[4]),
                     .image = load<std::uint32_t>(from + 8),
                     .count = load<std::uint32_t>(from + 12),
                     .objects = load<std::uint32_t>(from + 16),
                     .first_event = load<std::uint64_t>(from + 24),
                     .first_object = load<std::uint64_t>(from + 32),
                     .first_time_ns = load<std::uint64_t>(from + 40),
                     .last_time_ns = load<std::uint64_t>(from + 48),
                     .threads = load<std::uint32_t>(from + 20),
                     .plain_bytes = load<std::uint32_t>(from + 56),
                     .coded_bytes = load<std::uint32_t>(from + 60),
                     .payload_crc = load<std::uint32_t>(from + 64)};
}

const char* find_lie(const ChunkHeader& header) {
  if (header.coded_bytes > max_payload_bytes || header.plain_bytes > max_payload_bytes) {
    return "it claims more bytes than a chunk can have";
  }
  switch (header.type) {
    case ChunkType::image_begin:
    case ChunkType::image_end:
      if (header.image >= max_images) return "it claims an image's number that none can have";
      if (header.coded_bytes > max_image_record_bytes) {
        return "it claims more bytes than a chunk of its type can have";
      }
      return nullptr;
    case ChunkType::events:
      break;
    case ChunkType::index:
      if (std::uint64_t{header.count} * chunk_header_bytes != header.plain_bytes) {
        return "the chunks that it claims to list do not fit its size";
      }
      return nullptr;
    default:
      return nullptr;  // of a later version that readers of this one can do without
  }
  if (header.image >= max_images) return "it claims an image's number that none can have";
  if (header.count == 0 || header.count > max_chunk_events) {
    return "it claims a number of events that a chunk cannot have";
  }
  if (header.first_event > max_events || header.first_object > max_events) {
    return "it claims a place that no event can have";
  }
  if (header.objects > header.count) return "it claims more objects than events";
  // The image begins with one thread, and each event can be the first of another.
  if (header.threads > max_threads || header.threads == 0 ||
      header.threads > header.events_end() + 1) {
    return "it claims more threads than can have been";
  }
  if (header.plain_bytes > header.count * max_event_bytes ||
      header.coded_bytes > header.plain_bytes + max_table_bytes) {
    return "it claims more bytes than its events can have";
  }
  return nullptr;
}

std::array<std::uint8_t, footer_bytes> encode(const Footer& footer) {
  std::array<std::uint8_t, footer_bytes> bytes{};
  std::copy(footer_magic.begin(), footer_magic.end(), bytes.begin());
  store(&bytes[8], footer.index_offset);
  store(&bytes[16], footer.events);
  store(&bytes[24], footer.index_chunks);
  store(&bytes[28], footer.chunks);
  store(&bytes[32], footer.images);
  seal(bytes.data(), bytes.size());
  return bytes;
}

std::optional<Footer> decode_footer(ByteSpan bytes) {
  if (bytes.size() < footer_bytes || !begins_with(bytes, footer_magic) ||
      !is_sealed(bytes.first(footer_bytes))) {
    return std::nullopt;
  }
  return Footer{.index_offset = load<std::uint64_t>(&bytes[8]),
                .index_chunks = load<std::uint32_t>(&bytes[24]),
                .chunks = load<std::uint32_t>(&bytes[28]),
                .images = load<std::uint32_t>(&bytes[32]),
                .events = load<std::uint64_t>(&bytes[16])};
}

}  // namespace ts::trace
