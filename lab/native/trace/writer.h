// Writes a trace: events in, chunks out, each into the file as soon as it is full. So if the writer
// is killed, its file can be read up to the last chunk.
//
// Every function throws Error if the file cannot be written; the file then ends with the last whole
// chunk, and only the destructor may be called.
#pragma once

#include <fcntl.h>
#include <unistd.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/system.h"
#include "trace/format.h"

namespace ts::trace {

// Its text says which file, what is wrong, and what to do.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Image {
  std::uint32_t parent = no_image;
  Birth birth = Birth::root;
  std::uint64_t fork_event = 0;  // of the parent, for a fork: the next one it adds
  std::uint64_t begin_ns = 0;    // since the recording began
  std::string program{};         // of a path, the part after the last '/' is written
  std::string allocator{};
};

inline ChunkHeader header_of(ChunkType type, std::uint32_t image = 0, std::uint32_t count = 0,
                             std::uint64_t first = 0) {
  ChunkHeader header{{}, version, type, image, count, first, 0};
  std::memcpy(header.magic, magic, sizeof magic);
  return header;
}

// The first byte of each event, then the second byte of each, and so on.
inline std::string transposed(const std::vector<Event>& events) {
  std::string bytes(events.size() * sizeof(Event), '\0');
  const auto* const from = reinterpret_cast<const char*>(events.data());
  char* to = bytes.data();
  for (std::size_t byte = 0; byte < sizeof(Event); ++byte) {
    for (std::size_t i = 0; i < events.size(); ++i) *to++ = from[i * sizeof(Event) + byte];
  }
  return bytes;
}

class Writer {
 public:
  // Overwrites a file.
  explicit Writer(const std::string& path) : path_{path} {
    if (compressor_ == nullptr) throw Error{"out of memory while compressing the trace."};
    ZSTD_CCtx_setParameter(compressor_.get(), ZSTD_c_checksumFlag, 1);
    // Must not block if the name is a FIFO's, which cannot seek anyway.
    const int flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_TRUNC;
    descriptor_ = open(path.c_str(), flags, 0666);
    if (descriptor_ < 0) {
      throw Error{"cannot create the trace '" + path + "': " + strerrordesc_np(errno) +
                  ". Name a writable file."};
    }
  }

  // Without finish, the trace lacks its end.
  ~Writer() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Returns the image's number: 0, 1, 2... in order of the calls. A fork's parent adds the fork
  // next.
  std::uint32_t begin_image(const Image& image) {
    if (images_ == max_images) throw Error{"the program started too many programs for one trace."};
    if (image.birth == Birth::fork) write_events(image.parent, open_.at(image.parent));
    ImageBegin begin{image.parent, image.birth, image.fork_event, image.begin_ns, {}, {}};
    copy_name(begin.program, image.program);
    copy_name(begin.allocator, image.allocator);
    write_chunk(header_of(ChunkType::image, images_), &begin, sizeof begin);
    open_[images_];
    return images_++;
  }

  // Adds the next event of an image that has begun and has not ended.
  void add(std::uint32_t image, const Event& event) {
    OpenImage& written = open_.at(image);
    written.events.push_back(event);
    written.last_ns = event.time_ns;
    if (event.kind == Kind::thread_begin) ++written.threads;
    ++events_;
    ++held_events_;
    if (written.events.size() == max_events_per_chunk) write_events(image, written);
    if (held_events_ >= max_held_events) write_fullest();
  }

  void end_image(std::uint32_t image, End end, std::uint64_t end_ns) {
    OpenImage& ended = open_.at(image);
    write_events(image, ended);
    const ImageEnd last{
        .events = ended.written, .end_ns = end_ns, .threads = ended.threads, .end = end};
    write_chunk(header_of(ChunkType::image_end, image), &last, sizeof last);
    open_.erase(image);
  }

  // Writes all events so far into the file, and starts writing the file to the disk.
  void flush() {
    for (auto& [number, image] : open_) write_events(number, image);
    // If possible: not every file system supports it, and the file does not need it to outlive the
    // process.
    (void)sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE);
  }

  // Ends all images that have not ended, and closes the file. Call it last.
  void finish() {
    while (!open_.empty()) {
      end_image(open_.begin()->first, End::unknown, open_.begin()->second.last_ns);
    }
    const TraceEnd last{.events = events_, .images = images_, .reserved = 0};
    write_chunk(header_of(ChunkType::trace_end, 0), &last, sizeof last);
    const int descriptor = descriptor_;
    descriptor_ = -1;
    if (close(descriptor) != 0) fail(errno);
  }

  std::uint64_t bytes_written() const { return size_; }

 private:
  // For all images together, in memory; beyond that the fullest is written.
  static constexpr std::size_t max_held_events = std::size_t{1} << 20;

  struct OpenImage {
    std::vector<Event> events;  // not yet written
    std::uint64_t written = 0;
    std::uint64_t last_ns = 0;
    std::uint32_t threads = 1;
  };

  static void copy_name(char (&to)[name_bytes], const std::string& path) {
    const std::string name = path.substr(path.rfind('/') + 1);
    std::memcpy(to, name.data(), std::min(name.size(), name_bytes - 1));
  }

  void write_events(std::uint32_t number, OpenImage& image) {
    const auto count = static_cast<std::uint32_t>(image.events.size());
    if (count == 0) return;
    const std::string bytes = transposed(image.events);
    write_chunk(header_of(ChunkType::events, number, count, image.written), bytes.data(),
                bytes.size());
    image.written += count;
    held_events_ -= count;
    image.events.clear();
  }

  void write_fullest() {
    const auto fullest = std::ranges::max_element(
        open_, {}, [](const auto& each) { return each.second.events.size(); });
    write_events(fullest->first, fullest->second);
    fullest->second.events.shrink_to_fit();
  }

  void write_chunk(ChunkHeader header, const void* content, std::size_t bytes) {
    plain_.resize(sizeof header + bytes);
    std::memcpy(plain_.data(), &header, sizeof header);
    std::memcpy(plain_.data() + sizeof header, content, bytes);
    packed_.resize(ZSTD_compressBound(plain_.size()));
    const std::size_t packed = ZSTD_compress2(compressor_.get(), packed_.data(), packed_.size(),
                                              plain_.data(), plain_.size());
    if (ZSTD_isError(packed) != 0) throw Error{"out of memory while compressing the trace."};
    if (const int error_number = write_all(descriptor_, packed_.data(), packed)) fail(error_number);
    size_ += packed;
  }

  [[noreturn]] void fail(int error_number) {
    // A reader could not use part of a chunk.
    if (descriptor_ >= 0) static_cast<void>(ftruncate(descriptor_, static_cast<off_t>(size_)) == 0);
    throw Error{"cannot write the trace '" + path_ + "': " + strerrordesc_np(error_number) +
                (size_ == 0 ? "" : ". What was written before is readable") +
                ". Free some space, or record to a file elsewhere."};
  }

  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  std::unique_ptr<ZSTD_CCtx, decltype(&ZSTD_freeCCtx)> compressor_{ZSTD_createCCtx(),
                                                                   &ZSTD_freeCCtx};
  std::map<std::uint32_t, OpenImage> open_;
  std::uint32_t images_ = 0;
  std::uint64_t events_ = 0;
  std::size_t held_events_ = 0;
  std::vector<char> plain_;
  std::vector<char> packed_;
};

}  // namespace ts::trace
