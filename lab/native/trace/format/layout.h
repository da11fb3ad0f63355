// The parts of the file: its header, chunks, index and footer. docs/formats/trace.md draws every byte.
//
// Why it exists: writer and reader agree here. What it refuses to do: know where things are in a
// particular file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "trace/format/bytes.h"
#include "trace/format/event.h"

namespace ts::trace {

inline constexpr std::uint32_t format_version = 1;

// The first byte is no ASCII, and the line ends of both worlds come last, so that a transfer as
// text is noticed at once.
inline constexpr std::array<std::uint8_t, 8> file_magic{0x89, 'T',  'S',  'T',
                                                        '\r', '\n', 0x1a, '\n'};
inline constexpr std::array<std::uint8_t, 4> chunk_magic{0xd5, 'T', 'C', 0x01};  // and the version
inline constexpr std::array<std::uint8_t, 8> footer_magic{0xd5, 'T', 'S', 'T', 'E', 'N', 'D', 0x01};

inline constexpr std::size_t file_header_bytes = 24;
inline constexpr std::size_t chunk_header_bytes = 80;
inline constexpr std::size_t footer_bytes = 48;

inline constexpr std::uint32_t max_chunk_events = 65'536;
inline constexpr std::uint32_t max_payload_bytes = 4 << 20;  // plain, and coded likewise
inline constexpr std::uint32_t max_image_record_bytes = 1'024;
inline constexpr std::uint32_t max_chunks = 1 << 22;  // in a file

struct FileHeader {
  std::uint32_t version = format_version;
};
std::array<std::uint8_t, file_header_bytes> encode(const FileHeader& header);
// Nothing, unless magic and checksum are right.
std::optional<FileHeader> decode_file_header(ByteSpan bytes);

enum class ChunkType : std::uint8_t { image_begin = 1, events = 2, image_end = 3, index = 4 };

// Before each chunk's payload.
struct ChunkHeader {
  ChunkType type = ChunkType::events;
  std::uint32_t image = 0;          // 0 for an index
  std::uint32_t count = 0;          // of events; in an index: of headers
  std::uint32_t objects = 0;        // that its events make
  std::uint64_t first_event = 0;    // in an index: number of the first chunk that it lists
  std::uint64_t first_object = 0;   // the next new object gets this number
  std::uint64_t first_time_ns = 0;  // of the first event
  std::uint64_t last_time_ns = 0;   // of the last event
  std::uint32_t threads = 0;        // of the image that its events have shown so far
  std::uint32_t plain_bytes = 0;    // of the payload, unpacked
  std::uint32_t coded_bytes = 0;    // as it lies in the file
  std::uint32_t payload_crc = 0;

  std::uint64_t events_end() const { return first_event + count; }
  std::uint64_t objects_end() const { return first_object + objects; }

  friend bool operator==(const ChunkHeader&, const ChunkHeader&) = default;
};
void encode(const ChunkHeader& header, std::uint8_t* to);
// Nothing, unless magic and checksum are right. The values of the fields are not judged.
std::optional<ChunkHeader> decode_chunk_header(ByteSpan bytes);
// A field that no writer would have written, in words; null if all are possible.
const char* find_lie(const ChunkHeader& header);

struct Footer {
  std::uint64_t index_offset = 0;
  std::uint32_t index_chunks = 0;
  std::uint32_t chunks = 0;  // before the index
  std::uint32_t images = 0;
  std::uint64_t events = 0;  // of all images
};
std::array<std::uint8_t, footer_bytes> encode(const Footer& footer);
std::optional<Footer> decode_footer(ByteSpan bytes);

// The payloads of the chunks at an image's begin and end.
Bytes encode_begin(const Image& image);
Bytes encode_end(const Image& image);
// Fill what each tells; false where it holds what no writer writes.
bool decode_begin(ByteSpan payload, Image& image);
bool decode_end(ByteSpan payload, Image& image);

}  // namespace ts::trace
