#include "record/collector/event_translator.h"

#include <utility>

namespace ts::record {

using trace::Event;
using trace::Kind;

EventTranslator::EventTranslator(Sink& sink, std::uint32_t number, ObjectMap inherited,
                                 std::uint32_t first_slot)
    : sink_{&sink}, number_{number}, objects_{std::move(inherited)}, slots_{first_slot} {}

void EventTranslator::write(const Event& event) {
  sink_->add(number_, event);
  ++events_;
}

void EventTranslator::emit(const RawEvent& raw, Kind kind, trace::Slot slot, std::uint64_t size) {
  Event event;
  event.time_ns = raw.time_ns;
  event.size = size;
  event.slot = slot.number;
  event.generation = slot.generation;
  event.thread = thread_of(raw);
  event.kind = kind;
  if (kind == Kind::aligned) event.log2_alignment = raw.log2_alignment;
  write(event);
}

void EventTranslator::emit_free(const RawEvent& raw, std::uint64_t object) {
  ++frees_;
  emit(raw, Kind::free, slot_of(object), 0);
  slots_.give_back(slot_of(object), thread_of(raw), events_);
}

// A number that was not announced belongs to a thread whose beginning was lost. An ended thread no
// longer counts: a thread with its number is a new one.
std::uint32_t EventTranslator::thread_of(const RawEvent& raw) {
  if (is_alive(raw.thread)) return thread_numbers_[raw.thread];
  return raw.thread < trace::max_threads ? start_thread(raw.thread, 0, raw.time_ns) : 0;
}

bool EventTranslator::is_alive(std::uint64_t raw_thread) const {
  return raw_thread < thread_numbers_.size() && thread_numbers_[raw_thread] != not_started;
}

std::uint32_t EventTranslator::start_thread(std::uint32_t raw_thread, std::uint32_t creator,
                                            std::uint64_t time_ns) {
  if (raw_thread >= thread_numbers_.size()) {
    thread_numbers_.resize(raw_thread + 1, not_started);
    last_numbers_.resize(raw_thread + 1, 0);
  }
  const std::uint32_t number = threads_++;
  thread_numbers_[raw_thread] = number;
  last_numbers_[raw_thread] = number;
  Event event;
  event.time_ns = time_ns;
  event.slot = creator;
  event.thread = number;
  event.kind = Kind::thread_begin;
  write(event);
  return number;
}

void EventTranslator::begin_thread(const RawEvent& raw) {
  if (is_alive(raw.address) || raw.address >= trace::max_threads) return;
  const auto thread = static_cast<std::uint32_t>(raw.address);
  const auto creator = static_cast<std::uint32_t>(raw.size) - 1;  // 0 is none
  // The creator may itself have ended, but it did have a number.
  const bool is_creator_known = raw.size > 0 && creator < last_numbers_.size();
  start_thread(thread, is_creator_known ? last_numbers_[creator] : 0, raw.time_ns);
}

void EventTranslator::end_thread(const RawEvent& raw) {
  if (!is_alive(raw.address)) return;
  const auto thread = static_cast<std::uint32_t>(raw.address);
  Event event;
  event.time_ns = raw.time_ns;
  event.thread = thread_numbers_[thread];
  event.kind = Kind::thread_end;
  write(event);
  slots_.end_thread(event.thread, events_);
  thread_numbers_[thread] = not_started;
}

// Before an object can exist there, any earlier one must have been freed.
void EventTranslator::settle_at(const RawEvent& raw, std::uint64_t object) {
  if (const auto former = objects_.put(raw.address, object)) {
    ++anomalies_.missed_frees;
    emit_free(raw, *former);
  }
}

void EventTranslator::allocate(const RawEvent& raw, Kind kind) {
  const trace::Slot slot = slots_.take(thread_of(raw), events_);
  settle_at(raw, object_in(slot));
  ++objects_made_;
  emit(raw, kind, slot, raw.size);
}

void EventTranslator::release(const RawEvent& raw) {
  if (const auto object = objects_.take(raw.address)) {
    emit_free(raw, *object);
  } else {
    ++anomalies_.unknown_frees;
  }
}

void EventTranslator::leave(const RawEvent& raw) {
  leaving_[raw.ticket] = {.object = objects_.take(raw.address).value_or(unknown),
                          .address = raw.address,
                          .time_ns = raw.time_ns};
}

// Only now is it known whether the block moved, was freed (resized to nothing), or stayed as it was
// because nothing larger was available.
void EventTranslator::resize(const RawEvent& raw) {
  Leaving left{.object = unknown, .address = 0, .time_ns = raw.time_ns};
  if (const auto found = leaving_.find(raw.leave_ticket); found != leaving_.end()) {
    left = found->second;
    leaving_.erase(found);
  }
  RawEvent event = raw;
  event.time_ns = left.time_ns;
  const bool is_known = left.object != unknown;
  if (raw.address != 0) {
    if (is_known) {
      settle_at(event, left.object);
      emit(event, Kind::realloc, slot_of(left.object), raw.size);
    } else {
      ++anomalies_.unknown_resizes;
      allocate(event, Kind::malloc);
    }
  } else if (raw.size != 0) {
    if (is_known) objects_.put(left.address, left.object);
    emit(event, Kind::refused, {}, raw.size);
  } else if (is_known) {
    emit_free(event, left.object);
  } else {
    ++anomalies_.unknown_frees;
  }
}

void EventTranslator::add(const RawEvent& raw) {
  switch (raw.kind) {
    case RawKind::malloc:
      return allocate(raw, Kind::malloc);
    case RawKind::calloc:
      return allocate(raw, Kind::calloc);
    case RawKind::aligned:
      return allocate(raw, Kind::aligned);
    case RawKind::free:
      return release(raw);
    case RawKind::leave:
      return leave(raw);
    case RawKind::resize:
      return resize(raw);
    case RawKind::refused:
      return emit(raw, Kind::refused, {}, raw.size);
    case RawKind::thread_begin:
      return begin_thread(raw);
    case RawKind::thread_end:
      return end_thread(raw);
    case RawKind::fork:
      return;  // fork() below
  }
}

EventTranslator EventTranslator::fork(const RawEvent& raw, trace::Image child) {
  const std::uint32_t thread = thread_of(raw);
  child.parent = number_;
  child.birth = trace::Birth::fork;
  child.fork_event = events_;
  Event event;
  event.time_ns = raw.time_ns;
  event.slot = sink_->begin_image(child);
  event.thread = thread;
  event.kind = Kind::fork;
  write(event);
  return EventTranslator{*sink_, event.slot, objects_, slots_.count()};
}

void EventTranslator::conclude(trace::End end, std::uint64_t end_ns) {
  for (const auto& [ticket, left] : leaving_) {
    if (left.object != unknown) ++anomalies_.unfinished;
  }
  sink_->end_image(number_, end, end_ns);
}

}  // namespace ts::record
