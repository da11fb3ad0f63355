// Turns raw records into the events of a trace: objects instead of addresses, threads numbered by
// birth.
//
// A trace contains no addresses, and every event in it must make sense: freed objects are live, and
// a thread that acts has begun and has not ended. Records need not: blocks come from before the
// recording, or are freed by functions that are not intercepted. Records that cannot be events are
// counted, and the counts are reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/system.h"
#include "record/ring.h"
#include "trace/format.h"
#include "trace/slots.h"
#include "trace/writer.h"

namespace ts::record {

// Writes events into a trace file, as long as there is room.
//
// A full disk must not end the recorded program. The first failure is reported at once, what was
// written before stays readable, and the rest is lost.
class TraceSink {
 public:
  // Overwrites an existing file. Nothing is written before this call.
  void open(const std::string& path) {
    try {
      writer_.emplace(path);
    } catch (const std::exception& error) {
      fail(error);
    }
  }

  // Returns its number.
  std::uint32_t begin_image(const trace::Image& image) {
    attempt([&] { writer_->begin_image(image); });
    return images_++;
  }
  void add(std::uint32_t image, const trace::Event& event) {
    attempt([&] { writer_->add(image, event); });
  }
  void end_image(std::uint32_t image, trace::End end, std::uint64_t end_ns) {
    attempt([&] { writer_->end_image(image, end, end_ns); });
  }

  void flush() {
    attempt([&] { writer_->flush(); });
  }
  void finish() {
    attempt([&] { writer_->finish(); });
  }

  std::uint64_t bytes() const { return bytes_; }
  const std::string& failure() const { return failure_; }  // "": none

 private:
  template <class Action>
  void attempt(Action action) {
    if (!writer_.has_value()) return;
    try {
      action();
      bytes_ = writer_->bytes_written();
    } catch (const std::exception& error) {
      fail(error);
    }
  }

  void fail(const std::exception& error) {
    failure_ = error.what();
    static_cast<void>(std::fprintf(stderr, "%s: %s\n", tool_name(), error.what()));
    writer_.reset();
  }

  std::optional<trace::Writer> writer_;  // none after a failure
  std::uint32_t images_ = 0;
  std::uint64_t bytes_ = 0;
  std::string failure_;
};

// Maps addresses to the objects that live there: open addressing, linear probing; keys are never 0.
// A table of the standard library allocates for each entry, which makes recording two to three
// times as slow.
class ObjectMap {
 public:
  // Both return the previous object.
  std::optional<std::uint64_t> put(std::uint64_t address, std::uint64_t object) {
    if ((size_ + 1) * 3 > entries_.size() * 2) grow();
    Entry& entry = entries_[locate(address)];
    if (entry.address == address) return std::exchange(entry.object, object);
    entry = {address, object};
    ++size_;
    return std::nullopt;
  }

  // Entries after the hole move up, so that no search ends there too early.
  std::optional<std::uint64_t> take(std::uint64_t address) {
    if (entries_.empty()) return std::nullopt;
    std::size_t hole = locate(address);
    if (entries_[hole].address == 0) return std::nullopt;
    const std::uint64_t object = entries_[hole].object;
    for (std::size_t i = (hole + 1) & mask(); entries_[i].address != 0; i = (i + 1) & mask()) {
      const std::size_t from_home = (i - home(entries_[i].address)) & mask();
      const std::size_t from_hole = (i - hole) & mask();
      if (from_home < from_hole) continue;
      entries_[hole] = entries_[i];
      hole = i;
    }
    entries_[hole] = {0, 0};
    --size_;
    return object;
  }

 private:
  struct Entry {
    std::uint64_t address;  // 0: empty
    std::uint64_t object;
  };

  std::size_t home(std::uint64_t address) const {
    constexpr std::uint64_t golden = 0x9e3779b97f4a7c15;
    return static_cast<std::size_t>(((address >> 3) * golden) >> shift_);
  }
  std::size_t mask() const { return entries_.size() - 1; }

  // Or the empty slot where it would be.
  std::size_t locate(std::uint64_t address) const {
    std::size_t i = home(address);
    while (entries_[i].address != 0 && entries_[i].address != address) i = (i + 1) & mask();
    return i;
  }

  void grow() {
    constexpr unsigned first_bits = 8;
    std::vector<Entry> old = std::move(entries_);
    shift_ = old.empty() ? 64 - first_bits : shift_ - 1;
    entries_.assign(std::size_t{1} << (64 - shift_), Entry{0, 0});
    size_ = 0;
    for (const Entry& entry : old) {
      if (entry.address != 0) put(entry.address, entry.object);
    }
  }

  std::vector<Entry> entries_;
  std::size_t size_ = 0;
  unsigned shift_ = 64;
};

using trace::Event;
using trace::Kind;

struct RawEvent {
  const Record& record;
  std::uint32_t thread;   // as the shim numbers them
  std::uint64_t time_ns;  // since the image began
};

struct Sums {
  std::uint64_t events = 0;
  std::uint64_t objects = 0;
  std::uint64_t frees = 0;
  std::uint32_t threads = 1;  // the first one has no birth
  // Records that were no events, or other events than they claim.
  std::uint64_t unknown_frees = 0;    // of blocks whose allocation was not recorded
  std::uint64_t unknown_resizes = 0;  // likewise; recorded as allocations
  std::uint64_t missed_frees = 0;     // addresses returned again without a free; one is recorded
  std::uint64_t unfinished = 0;       // resizes without an end
};

class EventTranslator {
 public:
  // For image `number`, which has begun in the sink. A forked child begins with its parent's map
  // and slots, other images with nothing.
  EventTranslator(TraceSink& sink, std::uint32_t number, ObjectMap inherited = {},
                  std::uint32_t first_slot = 0)
      : sink_{&sink}, number_{number}, objects_{std::move(inherited)}, slots_{first_slot} {}

  // Records in ticket order, of all kinds but fork.
  void add(const RawEvent& raw) {
    switch (raw.record.kind()) {
      case RawKind::malloc:
      case RawKind::calloc:
      case RawKind::aligned:
        return allocate(raw, static_cast<Kind>(raw.record.kind()));  // both have the same numbers
      case RawKind::free:
        return release(raw);
      case RawKind::leave:
        return leave(raw);
      case RawKind::resize:
        return resize(raw);
      case RawKind::refused:
        return emit(raw, Kind::refused, {}, raw.record.size);
      case RawKind::thread_begin:
        return begin_thread(raw);
      case RawKind::thread_end:
        return end_thread(raw);
      case RawKind::fork:
        return;  // fork() below
    }
  }

  // The image forks: the event, and what the child begins with.
  EventTranslator fork(const RawEvent& raw, trace::Image child) {
    const std::uint32_t thread = thread_of(raw);
    child.parent = number_;
    child.birth = trace::Birth::fork;
    child.fork_event = sums_.events;
    const std::uint32_t number = sink_->begin_image(child);
    write({.time_ns = raw.time_ns, .slot = number, .thread = thread, .kind = Kind::fork});
    return EventTranslator{*sink_, number, objects_, slots_.count()};
  }

  void conclude(trace::End end, std::uint64_t end_ns) {
    for (const auto& [ticket, left] : leaving_) {
      if (left.object != unknown) ++sums_.unfinished;
    }
    sink_->end_image(number_, end, end_ns);
  }

  std::uint32_t number() const { return number_; }
  const Sums& sums() const { return sums_; }

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

  bool is_alive(std::uint64_t raw_thread) const {
    return raw_thread < thread_numbers_.size() && thread_numbers_[raw_thread] != not_started;
  }

  // A number that was not announced belongs to a thread whose beginning was lost. An ended thread
  // no longer counts: a thread with its number is a new one.
  std::uint32_t thread_of(const RawEvent& raw) {
    if (is_alive(raw.thread)) return thread_numbers_[raw.thread];
    return raw.thread < trace::max_threads ? start_thread(raw.thread, 0, raw.time_ns) : 0;
  }

  std::uint32_t start_thread(std::uint32_t raw_thread, std::uint32_t creator,
                             std::uint64_t time_ns) {
    if (raw_thread >= thread_numbers_.size()) {
      thread_numbers_.resize(raw_thread + 1, not_started);
      last_numbers_.resize(raw_thread + 1, 0);
    }
    const std::uint32_t number = sums_.threads++;
    thread_numbers_[raw_thread] = number;
    last_numbers_[raw_thread] = number;
    write({.time_ns = time_ns, .slot = creator, .thread = number, .kind = Kind::thread_begin});
    return number;
  }

  void begin_thread(const RawEvent& raw) {
    if (is_alive(raw.record.address()) || raw.record.address() >= trace::max_threads) return;
    const auto thread = static_cast<std::uint32_t>(raw.record.address());
    const auto creator = static_cast<std::uint32_t>(raw.record.size) - 1;  // 0 is none
    // The creator may itself have ended, but it did have a number.
    const bool is_creator_known = raw.record.size > 0 && creator < last_numbers_.size();
    start_thread(thread, is_creator_known ? last_numbers_[creator] : 0, raw.time_ns);
  }

  void end_thread(const RawEvent& raw) {
    if (!is_alive(raw.record.address())) return;
    const auto thread = static_cast<std::uint32_t>(raw.record.address());
    const std::uint32_t number = thread_numbers_[thread];
    write({.time_ns = raw.time_ns, .thread = number, .kind = Kind::thread_end});
    slots_.end_thread(number, sums_.events);
    thread_numbers_[thread] = not_started;
  }

  void allocate(const RawEvent& raw, Kind kind) {
    const trace::Slot slot = slots_.take(thread_of(raw), sums_.events);
    settle_at(raw, object_in(slot));
    ++sums_.objects;
    emit(raw, kind, slot, raw.record.size);
  }

  // Before an object can exist there, any earlier one must have been freed.
  void settle_at(const RawEvent& raw, std::uint64_t object) {
    if (const auto former = objects_.put(raw.record.address(), object)) {
      ++sums_.missed_frees;
      emit_free(raw, *former);
    }
  }

  void emit_free(const RawEvent& raw, std::uint64_t object) {
    ++sums_.frees;
    emit(raw, Kind::free, slot_of(object), 0);
    slots_.give_back(slot_of(object), thread_of(raw), sums_.events);
  }

  void release(const RawEvent& raw) {
    if (const auto object = objects_.take(raw.record.address())) {
      emit_free(raw, *object);
    } else {
      ++sums_.unknown_frees;
    }
  }

  void leave(const RawEvent& raw) {
    leaving_[raw.record.ticket.load(std::memory_order_relaxed)] = {
        .object = objects_.take(raw.record.address()).value_or(unknown),
        .address = raw.record.address(),
        .time_ns = raw.time_ns};
  }

  // Only now is it known whether the block moved, was freed (resized to nothing), or stayed as it
  // was because nothing larger was available.
  void resize(const RawEvent& raw) {
    Leaving left{.object = unknown, .address = 0, .time_ns = raw.time_ns};
    if (const auto found = leaving_.find(raw.record.time); found != leaving_.end()) {
      left = found->second;
      leaving_.erase(found);
    }
    const RawEvent event{raw.record, raw.thread, left.time_ns};  // as of its beginning
    const bool is_known = left.object != unknown;
    if (raw.record.address() != 0) {
      if (is_known) {
        settle_at(event, left.object);
        emit(event, Kind::realloc, slot_of(left.object), raw.record.size);
      } else {
        ++sums_.unknown_resizes;
        allocate(event, Kind::malloc);
      }
    } else if (raw.record.size != 0) {
      if (is_known) objects_.put(left.address, left.object);
      emit(event, Kind::refused, {}, raw.record.size);
    } else if (is_known) {
      emit_free(event, left.object);
    } else {
      ++sums_.unknown_frees;
    }
  }

  void emit(const RawEvent& raw, Kind kind, trace::Slot slot, std::uint64_t size) {
    Event event{.time_ns = raw.time_ns,
                .size = size,
                .slot = slot.number,
                .generation = slot.generation,
                .thread = thread_of(raw),
                .kind = kind};
    if (kind == Kind::aligned) event.log2_alignment = raw.record.log2_alignment();
    write(event);
  }

  void write(const Event& event) {
    sink_->add(number_, event);
    ++sums_.events;
  }

  TraceSink* sink_;
  std::uint32_t number_;
  ObjectMap objects_;
  trace::Slots slots_;
  Sums sums_;
  // By the shim's numbers, which may have gaps. not_started: it has not begun, or has ended.
  std::vector<std::uint32_t> thread_numbers_{0};
  std::vector<std::uint32_t> last_numbers_{0};          // including ended ones
  std::unordered_map<std::uint64_t, Leaving> leaving_;  // by ticket
};

}  // namespace ts::record
