#include "trace/format/layout.h"

#include <algorithm>
#include <cstring>

#include "trace/format/columns.h"

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

// What follows the last '/', and not more than the format has room for.
void put_base_name(Bytes& bytes, std::string_view text) {
  text.remove_prefix(text.rfind('/') + 1);  // npos + 1 is 0
  text = text.substr(0, max_name_bytes);
  put_number(bytes, text.size());
  bytes.insert(bytes.end(), text.begin(), text.end());
}

std::string take_name(ByteReader& reader) {
  const ByteSpan bytes = reader.bytes(reader.number());
  return {bytes.begin(), bytes.end()};
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

Bytes encode_begin(const Image& image) {
  Bytes bytes;
  put_number(bytes, image.parent == no_image ? 0 : std::uint64_t{image.parent} + 1);
  put_number(bytes, static_cast<std::uint64_t>(image.birth));
  put_number(bytes, image.fork_event);
  put_number(bytes, image.first_object);
  put_number(bytes, image.begin_ns);
  put_base_name(bytes, image.program);
  put_base_name(bytes, image.allocator);
  return bytes;
}

bool decode_begin(ByteSpan payload, Image& image) {
  ByteReader reader{payload};
  const std::uint64_t parent = reader.number();
  const std::uint64_t birth = reader.number();
  image.fork_event = reader.number();
  image.first_object = reader.number();
  image.begin_ns = reader.number();
  image.program = take_name(reader);
  image.allocator = take_name(reader);
  image.parent = parent == 0 ? no_image : static_cast<std::uint32_t>(parent - 1);
  image.birth = static_cast<Image::Birth>(birth);
  return reader.is_used_up() && parent <= max_images &&
         birth < static_cast<std::uint64_t>(Image::Birth::unknown) &&
         image.fork_event <= max_events && image.first_object <= max_events;
}

Bytes encode_end(const Image& image) {
  Bytes bytes;
  put_number(bytes, image.events);
  put_number(bytes, image.objects);
  put_number(bytes, image.threads);
  put_number(bytes, image.end_ns);
  put_number(bytes, static_cast<std::uint64_t>(image.end));
  return bytes;
}

bool decode_end(ByteSpan payload, Image& image) {
  ByteReader reader{payload};
  image.events = reader.number();
  image.objects = reader.number();
  image.threads = reader.number();
  image.end_ns = reader.number();
  const std::uint64_t end = reader.number();
  image.end = static_cast<Image::End>(end);
  return reader.is_used_up() && image.events <= max_events && image.objects <= image.events &&
         image.threads >= 1 &&
         image.threads <= std::min<std::uint64_t>(image.events + 1, max_threads) &&
         end <= static_cast<std::uint64_t>(Image::End::killed);
}

}  // namespace ts::trace
