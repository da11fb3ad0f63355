// Turns raw records into the events of a trace: objects instead of addresses, threads numbered by
// birth.
//
// A trace contains no addresses, and every event in it must make sense: freed objects are live, and
// a thread that acts has begun and has not ended. Records need not: blocks come from before the
// recording, or are freed by functions that are not intercepted. Records that cannot be events are
// counted, and the counts are reported.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "record/collector/object_map.h"
#include "record/ring.h"
#include "trace/format.h"
#include "trace/slots.h"
#include "trace/writer.h"

namespace ts::record {

// Receives the trace; trace_sink.h has the one that writes it.
class Sink {
 public:
  Sink() = default;
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  virtual ~Sink() = default;

  virtual std::uint32_t begin_image(const trace::Image& image) = 0;  // its number
  virtual void add(std::uint32_t image, const trace::Event& event) = 0;
  virtual void end_image(std::uint32_t image, trace::End end, std::uint64_t end_ns) = 0;
};

struct RawEvent {
  RawKind kind = RawKind::malloc;
  std::uint8_t log2_alignment = 0;
  std::uint32_t thread = 0;  // as the shim numbers them
  std::uint64_t ticket = 0;
  std::uint64_t address = 0;
  std::uint64_t size = 0;
  std::uint64_t leave_ticket = 0;  // of a resize
  std::uint64_t time_ns = 0;       // since the image began
};

// Records that were no events, or other events than they claim.
struct Anomalies {
  std::uint64_t unknown_frees = 0;    // of blocks whose allocation was not recorded
  std::uint64_t unknown_resizes = 0;  // likewise; recorded as allocations
  std::uint64_t missed_frees = 0;     // addresses returned again without a free; one is recorded
  std::uint64_t unfinished = 0;       // resizes without an end
};

class EventTranslator {
 public:
  // For image `number`, which has begun in the sink. A forked child begins with its parent's map
  // and slots, other images with nothing.
  EventTranslator(Sink& sink, std::uint32_t number, ObjectMap inherited = {},
                  std::uint32_t first_slot = 0);

  // Records in ticket order, of all kinds but fork.
  void add(const RawEvent& raw);

  // The image forks: the event, and what the child begins with.
  EventTranslator fork(const RawEvent& raw, trace::Image child);

  void conclude(trace::End end, std::uint64_t end_ns);

  std::uint32_t number() const { return number_; }
  std::uint64_t events() const { return events_; }
  std::uint64_t objects() const { return objects_made_; }
  std::uint64_t frees() const { return frees_; }
  std::uint32_t threads() const { return threads_; }
  const Anomalies& anomalies() const { return anomalies_; }

 private:
  static constexpr std::uint32_t not_started = UINT32_MAX;
  static constexpr std::uint64_t unknown = UINT64_MAX;

  // An object in the map: its slot and, above, its generation there.
  static std::uint64_t object_in(trace::Slot slot) {
    return std::uint64_t{slot.generation} << 32 | slot.number;
  }
  static trace::Slot slot_of(std::uint64_t object) {
    return {static_cast<std::uint32_t>(object), static_cast<std::uint32_t>(object >> 32)};
  }

  struct Leaving {
    std::uint64_t object;  // or unknown
    std::uint64_t address;
    std::uint64_t time_ns;
  };

  bool is_alive(std::uint64_t raw_thread) const;
  std::uint32_t thread_of(const RawEvent& raw);
  std::uint32_t start_thread(std::uint32_t raw_thread, std::uint32_t creator,
                             std::uint64_t time_ns);
  void begin_thread(const RawEvent& raw);
  void end_thread(const RawEvent& raw);
  void allocate(const RawEvent& raw, trace::Kind kind);
  void settle_at(const RawEvent& raw, std::uint64_t object);
  void emit_free(const RawEvent& raw, std::uint64_t object);
  void release(const RawEvent& raw);
  void leave(const RawEvent& raw);
  void resize(const RawEvent& raw);
  void emit(const RawEvent& raw, trace::Kind kind, trace::Slot slot, std::uint64_t size);
  void write(const trace::Event& event);

  Sink* sink_;
  std::uint32_t number_;
  ObjectMap objects_;
  trace::Slots slots_;
  std::uint64_t objects_made_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t frees_ = 0;
  std::uint32_t threads_ = 1;  // the first one has no birth
  // By the shim's numbers, which may have gaps. not_started: it has not begun, or has ended.
  std::vector<std::uint32_t> thread_numbers_{0};
  std::vector<std::uint32_t> last_numbers_{0};          // including ended ones
  std::unordered_map<std::uint64_t, Leaving> leaving_;  // by ticket
  Anomalies anomalies_;
};

}  // namespace ts::record
