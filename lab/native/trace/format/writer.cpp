#include "trace/format/writer.h"

#include <algorithm>
#include <utility>

#include "trace/format/bytes.h"
#include "trace/format/layout.h"

namespace ts::trace {
namespace {

[[noreturn]] void refuse(std::uint32_t image, const Event& event, const char* why) {
  throw Error{"cannot write an event of image " + std::to_string(image) + " (" +
              std::string{name(event.kind)} + " by thread " + std::to_string(event.thread) +
              ", object " + std::to_string(event.object) + "): " + why +
              ". That is a defect of the recorder: please report it."};
}

}  // namespace

// The rules of event.h; null if all are kept.
const char* Writer::OpenImage::find_fault(const Event& event) const {
  if (event.kind >= Kind::count) return "there is no such kind";
  if (event.thread > image.threads) return "threads are numbered without gaps";
  if (event.thread >= max_threads) return "no trace has so many threads";
  if (image.events >= max_events) return "no trace has so many events";
  if (makes_object(event.kind) && event.object != next_object()) {
    return "objects are numbered in the order of their allocations";
  }
  if (refers_to_object(event.kind) && event.object >= next_object())
    return "there is no such object yet";
  const std::uint64_t threads = std::max<std::uint64_t>(image.threads, event.thread + 1ULL);
  if (event.kind == Kind::thread_begin && event.object >= threads) {
    return "its creator's number cannot be";
  }
  if (event.kind == Kind::fork && event.object >= max_images) return "no image has such a number";
  if (!makes_object(event.kind) && !refers_to_object(event.kind) && !refers_to_other(event.kind) &&
      event.object != 0) {
    return "this kind has no object";
  }
  if (!has_size(event.kind) && event.size != 0) return "this kind has no size";
  if (event.log2_alignment > (event.kind == Kind::aligned ? max_log2_alignment : 0)) {
    return "its alignment cannot be";
  }
  return nullptr;
}

Writer::Writer(const std::string& path, bool force) : file_{path, force} {
  file_.append(encode(FileHeader{}));
}

Writer::~Writer() {
  if (is_finished_) return;
  try {
    flush();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the last write was told of it
  }
}

Writer::OpenImage& Writer::find(std::uint32_t number) {
  const auto found = open_.find(number);
  if (found == open_.end()) {
    throw Error{"image " + std::to_string(number) +
                " has not begun or has ended. That is a defect of the recorder: please report it."};
  }
  return found->second;
}

void Writer::write_chunk(ChunkHeader header, ByteSpan payload) {
  if (headers_.size() / chunk_header_bytes == max_chunks) {
    throw Error{"the trace has as many chunks as one can have. Record a shorter run."};
  }
  header.coded_bytes = static_cast<std::uint32_t>(payload.size());
  header.payload_crc = crc32c(payload);
  chunk_.resize(chunk_header_bytes);
  encode(header, chunk_.data());
  chunk_.insert(chunk_.end(), payload.begin(), payload.end());
  file_.append(chunk_);
  if (header.type != ChunkType::index) {
    headers_.insert(headers_.end(), chunk_.begin(), chunk_.begin() + chunk_header_bytes);
  }
}

void Writer::write_image_record(ChunkType type, std::uint32_t number, const Bytes& record) {
  ChunkHeader header;
  header.type = type;
  header.image = number;
  header.plain_bytes = static_cast<std::uint32_t>(record.size());
  write_chunk(header, record);
}

std::uint32_t Writer::begin_image(const Image& description) {
  const std::uint32_t number = images_;
  if (number == max_images) {
    throw Error{"the trace has as many images as one can have. Record fewer programs at a time."};
  }
  const bool is_known = description.parent == no_image || description.parent < number;
  if (!is_known || description.birth == Image::Birth::unknown ||
      description.first_object > max_events || description.fork_event > max_events) {
    throw Error{
        "image " + std::to_string(number) +
        " cannot have begun like that. That is a defect of the recorder: please report it."};
  }
  OpenImage open;
  open.image = description;
  open.image.number = number;
  open.image.events = open.image.objects = open.image.end_ns = 0;
  open.image.threads = 1;  // which need not have done anything when it creates another
  write_image_record(ChunkType::image_begin, number, encode_begin(open.image));
  ++images_;
  open_.emplace(number, std::move(open));
  return number;
}

void Writer::begin_events(OpenImage& open, const Event& first) {
  open.chunk = ChunkHeader{};
  open.chunk.image = open.image.number;
  open.chunk.first_event = open.image.events;
  open.chunk.first_object = open.next_object();
  open.chunk.first_time_ns = first.time_ns;
  open.encoder.begin(open.next_object(), first.time_ns);
}

void Writer::add(std::uint32_t number, const Event& event) {
  OpenImage& open = find(number);
  if (const char* const fault = open.find_fault(event)) refuse(number, event, fault);
  if (open.chunk.count == 0) begin_events(open, event);
  open.encoder.add(event);
  ++open.chunk.count;
  ++buffered_events_;
  ++open.image.events;
  if (makes_object(event.kind)) {
    ++open.chunk.objects;
    ++open.image.objects;
  }
  open.image.threads = std::max<std::uint64_t>(open.image.threads, event.thread + 1ULL);
  open.image.end_ns = std::max(open.image.end_ns, event.time_ns);
  open.chunk.last_time_ns = event.time_ns;
  if (open.chunk.count == max_chunk_events) write_events(open);
  if (buffered_events_ >= max_buffered_events) write_fullest();
}

void Writer::write_events(OpenImage& open) {
  if (open.chunk.count == 0) return;
  ChunkHeader header = open.chunk;
  open.chunk.count = 0;
  buffered_events_ -= header.count;
  header.threads = static_cast<std::uint32_t>(open.image.threads);
  payload_.clear();
  header.plain_bytes = open.encoder.end(payload_, packer_);
  write_chunk(header, payload_);
  events_ += header.count;
}

void Writer::write_fullest() {
  const auto fullest = std::max_element(open_.begin(), open_.end(), [](auto& a, auto& b) {
    return a.second.chunk.count < b.second.chunk.count;
  });
  write_events(fullest->second);
}

void Writer::flush() {
  for (auto& [number, open] : open_) write_events(open);
  file_.start_writeback();
}

void Writer::end_image(std::uint32_t number, Image::End end, std::uint64_t end_ns) {
  OpenImage& open = find(number);
  write_events(open);
  open.image.end = end;
  open.image.end_ns = end_ns;
  write_image_record(ChunkType::image_end, number, encode_end(open.image));
  open_.erase(number);
}

void Writer::write_index() {
  constexpr std::size_t headers_per_chunk = max_payload_bytes / chunk_header_bytes;
  const std::size_t count = headers_.size() / chunk_header_bytes;
  Footer footer{.index_offset = file_.size(),
                .index_chunks = 0,
                .chunks = static_cast<std::uint32_t>(count),
                .images = images_,
                .events = events_};
  for (std::size_t first = 0; first < count; first += headers_per_chunk) {
    const std::size_t here = std::min(headers_per_chunk, count - first);
    ChunkHeader header;
    header.type = ChunkType::index;
    header.count = static_cast<std::uint32_t>(here);
    header.first_event = first;
    header.plain_bytes = static_cast<std::uint32_t>(here * chunk_header_bytes);
    payload_.clear();
    packer_.append(payload_,
                   ByteSpan{headers_}.subspan(first * chunk_header_bytes, header.plain_bytes));
    write_chunk(header, payload_);
    ++footer.index_chunks;
  }
  file_.append(encode(footer));
}

void Writer::finish() {
  while (!open_.empty()) {
    const auto& [number, open] = *open_.begin();
    end_image(number, Image::End::unknown, open.image.end_ns);
  }
  write_index();
  file_.close();
  is_finished_ = true;
}

}  // namespace ts::trace
