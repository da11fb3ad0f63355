// Reads a trace, whole or damaged.
//
// Why it exists: a recording of hours must not be lost to one bad byte, and 10^8 events must not
// be held in memory. A Reader knows where the chunks are; each Cursor holds one chunk at a time.
// What it refuses to do: repair, or guess. Events that are lost are gaps that are told, with what
// they were; each chunk that is intact can be read, before the damage and after it.
//
//   Reader reader{path};
//   for (const Image& image : reader.images()) {
//     Cursor cursor = reader.events(image.number);
//     for (Event event; cursor.next(event);) {
//       if (cursor.gap()) ...  // events lost just before this one
//     }
//     if (cursor.gap()) ...    // lost at the end
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trace/format/chunk_list.h"
#include "trace/format/columns.h"
#include "trace/format/contents.h"
#include "trace/format/damages.h"
#include "trace/format/error.h"
#include "trace/format/event.h"
#include "trace/format/input_file.h"

namespace ts::trace {

// Events of an image that cannot be read.
struct Gap {
  std::uint64_t first_event = 0;
  std::uint64_t events = 0;  // 0: it is not known how many, nor whether there were any
  std::string text;          // for people
};

class Reader;

// The events of one image, in order. Lives no longer than its Reader.
class Cursor {
 public:
  // False: there is no further one.
  bool next(Event& event) {
    if (position_ == batch_.size() && !refill()) return false;
    event = batch_[position_++];
    return true;
  }

  // The number of the event that next() gave last.
  std::uint64_t number() const { return next_event_ - batch_.size() + position_ - 1; }

  // The loss directly before the event that next() gave last; after next() has returned
  // false, what is lost at the end. Null: nothing.
  const Gap* gap() const { return gap_ && position_ <= 1 ? &*gap_ : nullptr; }

 private:
  friend class Reader;
  Cursor(const Reader& reader, std::size_t place, std::uint64_t from_event);

  bool refill();
  std::size_t decode_batch();
  void open_chunk();
  void skip_to(std::uint64_t event);
  void lose(std::uint64_t up_to, std::string why);
  void end();

  const Reader& reader_;
  std::uint32_t image_;
  const ImageChunks& chunks_;
  std::size_t next_chunk_ = 0;
  std::uint64_t next_event_;  // after those of the batch
  EventDecoder decoder_;
  std::uint64_t chunk_events_end_ = 0;
  Bytes bytes_;
  std::vector<Event> batch_;
  std::size_t position_ = 0;
  std::optional<Gap> gap_;  // before the batch
  bool is_at_end_ = false;
};

class Reader {
 public:
  // Throws Error for a file that is no trace at all, is empty, of a newer version, or cannot be
  // read.
  explicit Reader(const std::string& path);
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // By number. Of a whole trace, images()[n] is number n; of a damaged one, some may be missing.
  const std::vector<Image>& images() const { return contents_.images; }
  const Image* find_image(std::uint32_t number) const;  // null: there is none

  // Found when the file was opened (its header, its end, the order of the chunks), and by verify.
  // In the order of the file; at most max_damages, the last of which sums up the others.
  static constexpr std::size_t max_damages = Damages::most;
  const std::vector<Damage>& damage() const { return damages_.list(); }
  bool is_whole() const { return damage().empty(); }

  // Reads every chunk, so that damage() is complete.
  void verify();

  std::uint64_t file_bytes() const { return file_.size(); }
  std::uint64_t chunks() const;  // of events

  // Throws Error if there is no such image. `from_event` may lie behind the last: no event is left.
  Cursor events(std::uint32_t image, std::uint64_t from_event = 0) const;

 private:
  friend class Cursor;

  // The place of an image in contents_; images().size() if there is none.
  std::size_t find(std::uint32_t image) const;
  void find_chunks();
  void tell_missing_end();
  void verify_chunk(const Chunk& chunk, EventDecoder& decoder, Bytes& bytes);

  InputFile file_;
  Damages damages_;
  bool is_header_damaged_ = false;
  ChunkList list_;
  Contents contents_;
  bool is_verified_ = false;
};

}  // namespace ts::trace
