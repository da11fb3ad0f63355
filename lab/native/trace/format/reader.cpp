// Opening a trace, and looking for all that is wrong with it; see reader.h.
#include "trace/format/reader.h"

#include <algorithm>
#include <cstring>

#include "trace/format/layout.h"

namespace ts::trace {
namespace {

bool begins_with(const Bytes& bytes, std::initializer_list<std::uint8_t> magic) {
  return bytes.size() >= magic.size() && std::equal(magic.begin(), magic.end(), bytes.begin());
}

// Why a file that does not begin like a trace, and holds no part of one, is none.
std::string foreign_text(const Bytes& begin) {
  const std::size_t size = std::min(begin.size(), file_magic.size());
  if (std::equal(begin.begin(), begin.begin() + static_cast<std::ptrdiff_t>(size),
                 file_magic.begin())) {
    return begin.size() < file_header_bytes ? "it is cut off within its header, and nothing is "
                                              "left. Copy it once more, or record "
                                              "again."
                                            : "its header is damaged, and nothing else is left. "
                                              "Copy it once more, or record again.";
  }
  if (begins_with(begin, {0x1f, 0x8b}) || begins_with(begin, {0x28, 0xb5, 0x2f, 0xfd}) ||
      begins_with(begin, {0xfd, '7', 'z'}) || begins_with(begin, {'B', 'Z', 'h'})) {
    return "it is compressed. Unpack it first (gzip -d, zstd -d, xz -d or bzip2 -d).";
  }
  return "it is no trace. Name a file that `tsmalloc record` wrote.";
}

}  // namespace

Reader::Reader(const std::string& path) : file_{path} {
  const std::string cannot = "cannot read '" + path + "': ";
  if (file_.size() == 0) {
    throw Error{cannot + "it is empty. The recorder was ended before it began: record again."};
  }
  Bytes begin;
  if (const char* const why =
          file_.read(0, std::min<std::uint64_t>(file_.size(), file_header_bytes), begin)) {
    throw Error{cannot + why + ". Copy it to a disk that can be read."};
  }
  const auto header = decode_file_header(begin);
  if (header && header->version != format_version) {
    throw Error{cannot + "it is a trace of version " + std::to_string(header->version) +
                ", and this program reads version " + std::to_string(format_version) +
                ". Use the tsmalloc that recorded it, or a newer one."};
  }
  is_header_damaged_ = !header;
  find_chunks();
  if (is_header_damaged_) {
    if (list_.chunks.empty() && !list_.footer) throw Error{cannot + foreign_text(begin)};
    const bool is_told = !damages_.list().empty() && damages_.list().front().offset == 0;
    if (!is_told) {
      damages_.add(0, file_header_bytes, 0,
                   "the file's header is damaged. Nothing is lost by that.");
    }
  }
  contents_ = read_contents(file_, list_, damages_);
  damages_.sort();
}

void Reader::find_chunks() {
  if (auto list = read_index(file_)) {
    list_ = std::move(*list);
    return;
  }
  // A damaged header may be longer or shorter than it was.
  list_ = scan(file_, is_header_damaged_ ? 0 : file_header_bytes, damages_);
  tell_missing_end();
}

void Reader::tell_missing_end() {
  const char* text =
      "the file has no end: the recorder was killed or is still at work, or the file was not "
      "copied whole. What came after this is lost.";
  if (list_.footer) {
    text = "the index is damaged or does not fit. Nothing is lost by that.";
  } else if (list_.has_index) {
    text =
        "the end of the file is missing, but only behind the last event. Nothing is lost by that.";
  }
  damages_.add(file_.size(), 0, 0, text);
}

std::size_t Reader::find(std::uint32_t image) const {
  const std::vector<Image>& images = contents_.images;
  const auto found = std::lower_bound(
      images.begin(), images.end(), image,
      [](const Image& known, std::uint32_t wanted) { return known.number < wanted; });
  const bool is_there = found != images.end() && found->number == image;
  return is_there ? static_cast<std::size_t>(found - images.begin()) : images.size();
}

void Reader::verify_chunk(const Chunk& chunk, EventDecoder& decoder, Bytes& bytes) {
  if (chunk.is_cut) return;  // told already
  const bool is_of_events = chunk.header.type == ChunkType::events;
  const char* why = read_payload(file_, chunk, bytes);
  const auto header = decode_chunk_header(bytes);
  if (bytes.size() >= chunk_header_bytes && (!header || *header != chunk.header)) {
    damages_.add(chunk.offset, chunk_header_bytes, 0,
                 "the header of a chunk is damaged: " + contents_text(chunk.header) +
                     ". The index has a copy; nothing is lost by that.");
  }
  const bool is_record =
      chunk.header.type == ChunkType::image_begin || chunk.header.type == ChunkType::image_end;
  if (is_record) return;  // they were read when the file was opened
  std::uint64_t lost = is_of_events ? chunk.header.count : 0;
  if (why == nullptr && is_of_events) {
    why = decoder.begin(chunk.header, ByteSpan{bytes}.subspan(chunk_header_bytes));
    Event events[256];
    while (why == nullptr && decoder.remaining() > 0) {
      lost -= decoder.decode(events);
      why = decoder.error();
    }
  }
  if (why == nullptr) return;
  damages_.add(chunk.offset, chunk.end() - chunk.offset, lost,
               "a chunk is damaged (" + std::string{why} + "): " + contents_text(chunk.header) +
                   " cannot be read. Copy the file once more from where it was recorded.");
}

void Reader::verify() {
  if (is_verified_) return;
  is_verified_ = true;
  EventDecoder decoder;
  Bytes bytes;
  for (const Chunk& chunk : list_.chunks) verify_chunk(chunk, decoder, bytes);
  damages_.sort();
}

const Image* Reader::find_image(std::uint32_t number) const {
  const std::size_t place = find(number);
  return place == images().size() ? nullptr : &images()[place];
}

std::uint64_t Reader::chunks() const {
  std::uint64_t chunks = 0;
  for (const ImageChunks& of_image : contents_.chunks) chunks += of_image.events.size();
  return chunks;
}

Cursor Reader::events(std::uint32_t image, std::uint64_t from_event) const {
  const std::size_t place = find(image);
  if (place == images().size()) {
    const std::string known = images().empty()
                                  ? "there is none"
                                  : "the last is " + std::to_string(images().back().number);
    throw Error{"the trace has no image " + std::to_string(image) + ": " + known + "."};
  }
  return Cursor{*this, place, from_event};
}

}  // namespace ts::trace
