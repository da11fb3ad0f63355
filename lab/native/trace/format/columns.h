// The payload of a chunk of events: columns, each packed by itself.
//
// Why it exists: like stands beside like, and what an event has no use for costs nothing: the
// number of a new object follows from those before, a thread is only named when it is another
// than that of the event before. What it refuses to do: give events that break the rules of
// event.h; a chunk that holds such is damaged, whatever its checksum says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "trace/format/bytes.h"
#include "trace/format/compression.h"
#include "trace/format/event.h"
#include "trace/format/numbers.h"

namespace ts::trace {

struct ChunkHeader;

// Tag 1, thread 5, object and time 9 each, size 10, alignment 1.
inline constexpr std::uint32_t max_event_bytes = 35;
inline constexpr std::size_t column_count = 9;
inline constexpr std::uint32_t max_table_bytes = 2 * 5 * column_count;

// The state that both sides keep of the events since the chunk's begin.
class Context {
 public:
  Context() = default;
  Context(std::uint64_t first_object, std::uint64_t first_time_ns);

  std::uint32_t thread = 0;
  std::uint64_t time_ns = 0;
  std::uint64_t next_object = 0;
  // The object of the thread's last realloc or free.
  std::uint64_t& last_object(std::uint32_t of_thread) {
    return last_objects_[of_thread % last_objects_.size()];
  }

 private:
  std::array<std::uint64_t, 16> last_objects_{};
};

class EventEncoder {
 public:
  // The first event goes with `first_object` and the time of the first event as header fields.
  void begin(std::uint64_t first_object, std::uint64_t first_time_ns);
  void add(const Event& event);
  // Appends the payload; returns the bytes of the columns before they were packed. Gives its memory
  // back: an image may rest for long.
  std::uint32_t end(Bytes& payload, Packer& packer);

 private:
  void add_object(const Event& event);

  Context context_;
  Bytes tags_;
  Bytes threads_;
  SpreadWriter objects_;
  RepeatedWriter sizes_;
  SpreadWriter times_;
  Bytes alignments_;
};

class EventDecoder {
 public:
  // Unpacks a payload whose checksum is right. Null, or what is wrong with it.
  const char* begin(const ChunkHeader& header, ByteSpan payload);

  // The next events into `events`, as many as there are. Returns how many are good; if that is
  // fewer than there should be, error() says why, and no further ones can be read.
  std::size_t decode(std::span<Event> events);

  std::uint32_t remaining() const { return remaining_; }
  const char* error() const { return error_; }

 private:
  void decode_event(Event& event);
  std::uint64_t decode_object(std::uint8_t tag, std::uint32_t thread);
  const char* find_error(const Event& event) const;
  void check_end();

  Unpacker unpacker_;
  Bytes plain_;  // all columns
  Context context_;
  ByteReader tags_;
  ByteReader threads_;
  SpreadReader objects_;
  RepeatedReader sizes_;
  SpreadReader times_;
  ByteReader alignments_;
  std::uint64_t events_end_ = 0;
  std::uint64_t objects_end_ = 0;
  std::uint64_t last_time_ns_ = 0;
  std::uint32_t thread_end_ = 0;
  std::uint32_t remaining_ = 0;
  const char* error_ = nullptr;
};

}  // namespace ts::trace
