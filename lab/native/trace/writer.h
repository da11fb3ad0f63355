// Writes a trace: events in, chunks out, each into the file as soon as it is full. So if the writer
// is killed, its file can be read up to the last chunk.
//
// Every function throws Error if the file cannot be written; the file then ends with the last whole
// chunk, and only the destructor may be called.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trace/format.h"
#include "trace/output_file.h"

struct ZSTD_CCtx_s;

namespace ts::trace {

struct Image {
  std::uint32_t parent = no_image;
  Birth birth = Birth::root;
  std::uint64_t fork_event = 0;  // of the parent, for a fork: the next one it adds
  std::uint64_t begin_ns = 0;    // since the recording began
  std::string program{};         // of a path, the part after the last '/' is written
  std::string allocator{};
};

class Writer {
 public:
  // Refuses to overwrite a file unless `force` is set.
  Writer(const std::string& path, bool force);
  ~Writer();  // without finish, the trace lacks its end
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Returns the image's number: 0, 1, 2... in order of the calls. A fork's parent adds the fork
  // next.
  std::uint32_t begin_image(const Image& image);

  // Adds the next event of an image that has begun and has not ended.
  void add(std::uint32_t image, const Event& event);

  void end_image(std::uint32_t image, End end, std::uint64_t end_ns);

  // Writes all events so far into the file, and starts writing the file to the disk.
  void flush();

  // Ends all images that have not ended, and closes the file. Call it last.
  void finish();

  std::uint64_t bytes_written() const { return file_.size(); }

 private:
  // For all images together, in memory; beyond that the fullest is written.
  static constexpr std::size_t max_held_events = std::size_t{1} << 20;

  struct OpenImage {
    std::vector<Event> events;  // not yet written
    std::uint64_t written = 0;
    std::uint64_t last_ns = 0;
    std::uint32_t threads = 1;
  };

  void write_events(std::uint32_t number, OpenImage& open);
  void write_fullest();
  void write_chunk(ChunkHeader header, const void* content, std::size_t bytes);

  OutputFile file_;
  std::unique_ptr<ZSTD_CCtx_s, void (*)(ZSTD_CCtx_s*)> compressor_;
  std::map<std::uint32_t, OpenImage> open_;
  std::uint32_t images_ = 0;
  std::uint64_t events_ = 0;
  std::size_t held_events_ = 0;
  std::vector<unsigned char> plain_;
  std::vector<unsigned char> packed_;
};

}  // namespace ts::trace
