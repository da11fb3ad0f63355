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
//
// Who cannot work with gaps calls require_whole(reader, path) and stops at the first gap of a
// cursor (a damaged chunk is only noticed when it is read, or by verify).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trace/format/error.h"
#include "trace/format/event.h"

namespace ts::trace {

struct Damage {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t bytes = 0;   // that cannot be used; 0 where something is missing
  std::uint64_t events = 0;  // lost, as far as is known
  std::string text;          // what is wrong, what is lost, what to do
};

// Events of an image that cannot be read.
struct Gap {
  std::uint64_t first_event = 0;
  std::uint64_t events = 0;  // 0: it is not known how many, nor whether there were any
  std::string text;          // for people
};

class TraceFile;  // format/trace_file.h

// The events of one image, in order. Lives no longer than its Reader.
class Cursor {
 public:
  Cursor(Cursor&&) noexcept;
  Cursor& operator=(Cursor&&) noexcept;
  ~Cursor();

  // False: there is no further one.
  bool next(Event& event) {
    if (position_ == batch_.size() && !refill()) return false;
    event = batch_[position_++];
    gap_ = position_ == 1 && has_gap_before_batch_;
    return true;
  }

  // The number of the event that next() gave last.
  std::uint64_t number() const { return batch_first_event_ + position_ - 1; }

  // What is lost directly before the event that next() gave last; after next() has returned
  // false, what is lost at the end. Null: nothing.
  const Gap* gap() const { return gap_ ? &gap_before_batch_ : nullptr; }

 private:
  friend class Reader;
  class Impl;
  explicit Cursor(std::unique_ptr<Impl> impl);
  bool refill();

  std::unique_ptr<Impl> impl_;
  std::vector<Event> batch_;
  std::size_t position_ = 0;
  std::uint64_t batch_first_event_ = 0;
  Gap gap_before_batch_;
  bool has_gap_before_batch_ = false;
  bool gap_ = false;
  bool is_at_end_ = false;
};

class Reader {
 public:
  // Throws Error for what is no trace at all, empty, of a newer version, or cannot be read.
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(Reader&&) noexcept;
  Reader& operator=(Reader&&) noexcept;

  // By number. Of a whole trace, images()[n] is number n; of a damaged one, some may be missing.
  const std::vector<Image>& images() const;
  const Image* find_image(std::uint32_t number) const;  // null: there is none

  // Found when the file was opened (its header, its end, the order of the chunks), and by verify.
  // In the order of the file; at most max_damages, the last of which sums up the others.
  static constexpr std::size_t max_damages = 1'000;
  const std::vector<Damage>& damage() const;
  bool is_whole() const { return damage().empty(); }

  // Reads every chunk, so that damage() is complete.
  void verify();

  std::uint64_t file_bytes() const;
  std::uint64_t chunks() const;  // of events

  // Throws Error if there is no such image. `from_event` may lie behind the last: no event is left.
  Cursor events(std::uint32_t image, std::uint64_t from_event = 0) const;

 private:
  std::unique_ptr<TraceFile> file_;
};

// Throws Error, with the first damage, unless the trace is whole as far as is known without verify.
void require_whole(const Reader& reader, const std::string& path);

}  // namespace ts::trace
