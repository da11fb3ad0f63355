// Writes a trace: events in, chunks out.
//
// Why it exists: a recording must survive the end of its writer. So chunks go to the file as they
// fill, and the index only comes last. Memory is bounded: when the unwritten chunks of
// all images together hold max_buffered_events events (of some 7 bytes each), the fullest is
// written. What it refuses to do: accept what a reader would have to call damage. An event that
// breaks the rules of event.h (objects without gaps, a thread number that skips one) is an Error
// here.
//
// Every function throws Error when the file cannot be written; the file then ends with the last
// whole chunk, and only the destructor may be called.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trace/format/columns.h"
#include "trace/format/compression.h"
#include "trace/format/error.h"
#include "trace/format/event.h"
#include "trace/format/layout.h"
#include "trace/format/output_file.h"

namespace ts::trace {

class Writer {
 public:
  static constexpr std::uint64_t max_buffered_events = 1 << 22;

  // Refuses to overwrite a file unless `force` is set.
  Writer(const std::string& path, bool force);

  // Without finish: writes what it holds, but no index; a reader says that the recording was cut
  // off.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Returns the image's number: 0, 1, 2... in the order of the calls; `image.number` and what is
  // only known at its end are not looked at. Of program and allocator, only what follows the last
  // '/' is written.
  std::uint32_t begin_image(const Image& image);

  // The next event of an image that has begun and has not ended.
  void add(std::uint32_t image, const Event& event);

  // How many events of the image were added so far.
  std::uint64_t events(std::uint32_t image) { return find(image).image.events; }

  // All events so far into the file, and the file on its way to the disk.
  void flush();

  // `end_ns`: since the image began.
  void end_image(std::uint32_t image, Image::End end, std::uint64_t end_ns);

  // Ends all images that have not ended (End::unknown, at the time of their last event), writes
  // index and footer, closes the file. Call it last.
  void finish();

  // Into the file so far, headers included.
  std::uint64_t bytes_written() const { return file_.size(); }

 private:
  // An image that has begun and not ended.
  struct OpenImage {
    Image image;  // events, objects, threads: so far; end_ns: of the last event
    EventEncoder encoder;
    ChunkHeader chunk;  // of the events in the encoder

    std::uint64_t next_object() const { return image.first_object + image.objects; }
    const char* find_fault(const Event& event) const;
  };

  OpenImage& find(std::uint32_t number);
  static void begin_events(OpenImage& open, const Event& first);
  void write_events(OpenImage& open);
  void write_fullest();
  void write_chunk(ChunkHeader header, ByteSpan payload);
  void write_image_record(ChunkType type, std::uint32_t number, const Bytes& record);
  void write_index();

  OutputFile file_;
  Packer packer_;
  std::map<std::uint32_t, OpenImage> open_;
  std::uint32_t images_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t buffered_events_ = 0;
  Bytes headers_;  // of all chunks, as they are in the file: the index
  Bytes payload_;
  Bytes chunk_;
  bool is_finished_ = false;
};

}  // namespace ts::trace
