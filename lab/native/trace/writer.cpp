// See writer.h.
#include "trace/writer.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>

namespace ts::trace {
namespace {

void destroy(ZSTD_CCtx* compressor) { ZSTD_freeCCtx(compressor); }

void copy_name(char (&to)[name_bytes], const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  std::memcpy(to, name.data(), std::min(name.size(), name_bytes - 1));
}

ChunkHeader header_of(ChunkType type, std::uint32_t image) {
  ChunkHeader header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = version;
  header.type = type;
  header.image = image;
  return header;
}

// The first byte of each event, then the second byte of each, and so on.
std::vector<unsigned char> transposed(const std::vector<Event>& events) {
  std::vector<unsigned char> bytes(events.size() * sizeof(Event));
  const auto* const from = reinterpret_cast<const unsigned char*>(events.data());
  unsigned char* to = bytes.data();
  for (std::size_t byte = 0; byte < sizeof(Event); ++byte) {
    for (std::size_t i = 0; i < events.size(); ++i) *to++ = from[i * sizeof(Event) + byte];
  }
  return bytes;
}

}  // namespace

Writer::Writer(const std::string& path, bool force)
    : file_{path, force}, compressor_{ZSTD_createCCtx(), destroy} {
  if (compressor_ == nullptr) throw Error{"out of memory while compressing the trace."};
  ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_checksumFlag, 1);
}

Writer::~Writer() = default;

void Writer::write_chunk(ChunkHeader header, const void* content, std::size_t bytes) {
  plain_.resize(sizeof header + bytes);
  std::memcpy(plain_.data(), &header, sizeof header);
  std::memcpy(plain_.data() + sizeof header, content, bytes);
  packed_.resize(ZSTD_compressBound(plain_.size()));
  const std::size_t packed = ZSTD_compress2(compressor_.get(), packed_.data(), packed_.size(),
                                            plain_.data(), plain_.size());
  if (ZSTD_isError(packed) != 0) throw Error{"out of memory while compressing the trace."};
  file_.append(packed_.data(), packed);
}

void Writer::write_events(std::uint32_t number, OpenImage& open) {
  if (open.events.empty()) return;
  ChunkHeader header = header_of(ChunkType::events, number);
  header.count = static_cast<std::uint32_t>(open.events.size());
  header.first = open.written;
  const std::vector<unsigned char> bytes = transposed(open.events);
  write_chunk(header, bytes.data(), bytes.size());
  open.written += open.events.size();
  held_events_ -= open.events.size();
  open.events.clear();
}

void Writer::write_fullest() {
  const auto fullest = std::ranges::max_element(
      open_, {}, [](const auto& each) { return each.second.events.size(); });
  write_events(fullest->first, fullest->second);
  fullest->second.events.shrink_to_fit();
}

std::uint32_t Writer::begin_image(const Image& image) {
  if (images_ == max_images) throw Error{"the program started too many programs for one trace."};
  if (image.birth == Birth::fork) write_events(image.parent, open_.at(image.parent));
  ImageBegin begin{};
  begin.parent = image.parent;
  begin.birth = image.birth;
  begin.fork_event = image.fork_event;
  begin.begin_ns = image.begin_ns;
  copy_name(begin.program, image.program);
  copy_name(begin.allocator, image.allocator);
  write_chunk(header_of(ChunkType::image, images_), &begin, sizeof begin);
  open_[images_];
  return images_++;
}

void Writer::add(std::uint32_t image, const Event& event) {
  OpenImage& open = open_.at(image);
  open.events.push_back(event);
  open.last_ns = event.time_ns;
  if (event.kind == Kind::thread_begin) ++open.threads;
  ++events_;
  ++held_events_;
  if (open.events.size() == max_events_per_chunk) write_events(image, open);
  if (held_events_ >= max_held_events) write_fullest();
}

void Writer::end_image(std::uint32_t image, End end, std::uint64_t end_ns) {
  OpenImage& open = open_.at(image);
  write_events(image, open);
  const ImageEnd last{
      .events = open.written, .end_ns = end_ns, .threads = open.threads, .end = end};
  write_chunk(header_of(ChunkType::image_end, image), &last, sizeof last);
  open_.erase(image);
}

void Writer::flush() {
  for (auto& [number, open] : open_) write_events(number, open);
  file_.start_writeback();
}

void Writer::finish() {
  while (!open_.empty()) {
    end_image(open_.begin()->first, End::unknown, open_.begin()->second.last_ns);
  }
  const TraceEnd last{.events = events_, .images = images_, .reserved = 0};
  write_chunk(header_of(ChunkType::trace_end, 0), &last, sizeof last);
  file_.close();
}

}  // namespace ts::trace
