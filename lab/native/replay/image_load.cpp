// See image_load.h.
#include "replay/image_load.h"

#include <algorithm>

#include "replay/pages.h"

namespace ts::plan {

using replay::Backing;
using replay::map_pages;
using replay::unmap_pages;
using trace::Event;

namespace {

constexpr std::uint64_t unlimited_epoch_events = 1'000;

// A thread by itself waits for none: its epochs are only there for samples.
constexpr std::uint64_t lone_epochs = 2'000;

std::uint64_t events_of_epoch(const Image& image, std::uint64_t window) {
  const std::uint64_t most = window != 0 ? window : unlimited_epoch_events;
  if (image.threads > 1) return most;
  return std::clamp<std::uint64_t>(image.events / lone_epochs, 1, most);
}

Kind kind_of(trace::Kind kind) {
  switch (kind) {
    case trace::Kind::calloc:
      return Kind::calloc;
    case trace::Kind::aligned:
      return Kind::aligned;
    default:
      return Kind::malloc;
  }
}

Operation operation_of(Kind kind, std::uint64_t size, std::uint32_t slot) {
  Operation operation = {};
  operation.size = size & most_bytes;
  operation.kind = static_cast<std::uint64_t>(kind) & 0xf;
  operation.slot = slot;
  return operation;
}

}  // namespace

void ImageLoad::prepare(Image& row, std::uint64_t window, bool is_filling) {
  row_ = &row;
  if (!is_filling) {
    slots_ = static_cast<SlotState*>(map_pages(row.slots * sizeof(SlotState), Backing::shared));
    threads_ =
        static_cast<ThreadState*>(map_pages(row.threads * sizeof(ThreadState), Backing::shared));
    inside_ =
        static_cast<std::uint32_t*>(map_pages(row.threads * sizeof *inside_, Backing::shared));
  }
  std::uint64_t first = 0;
  for (std::uint32_t t = 0; t < row.threads && is_filling; ++t) {
    row.thread_table[t].first_operation = first;
    row.thread_table[t].operations = threads_[t].emitted;
    row.thread_table[t].calls = 0;
    row.thread_table[t].creator = none;
    first += threads_[t].emitted;
  }
  for (std::uint64_t i = 0; i < row.slots && is_filling; ++i) {
    const bool is_shared = slots_[i].is_shared;
    slots_[i] = {};
    slots_[i].is_shared = is_shared;
  }
  std::fill_n(threads_, row.threads, ThreadState{});
  threads_[0].has_started = true;
  row.totals = {};
  row.live_bytes = row.live_objects = row.peak_live_bytes = row.peak_event = row.peak_epoch = 0;
  row.left_out = row.inherited_bytes = 0;
  is_filling_ = is_filling;
  window_ = window;
  epoch_events_ = events_of_epoch(row, window);
  epoch_end_ = seen_ = runs_ = 0;
  inside_count_ = epoch_ = fence_ = ends_ = run_operations_ = 0;
  last_thread_ = none;
  was_fork_ = is_fork_ = is_open_ = false;
}

void ImageLoad::release() {
  if (slots_ == nullptr) return;
  unmap_pages(slots_, row_->slots * sizeof(SlotState), Backing::shared);
  unmap_pages(threads_, row_->threads * sizeof(ThreadState), Backing::shared);
  unmap_pages(inside_, row_->threads * sizeof *inside_, Backing::shared);
}

// The forking thread is the child's first.
void ImageLoad::inherit(const ImageLoad& parent) {
  const std::uint64_t slots = std::min(parent.row_->slots, row_->slots);
  for (std::uint64_t i = 0; i < slots; ++i) {
    const bool is_shared = slots_[i].is_shared;
    slots_[i] = parent.slots_[i];
    slots_[i].thread = 0;
    slots_[i].is_shared = is_shared;
  }
  row_->live_bytes = row_->inherited_bytes = row_->peak_live_bytes = parent.row_->live_bytes;
  row_->live_objects = parent.row_->live_objects;
}

// So many events in a row, and forks by themselves.
bool ImageLoad::begins_epoch(bool is_fork) {
  const bool is_new = seen_ >= epoch_end_ || is_fork || was_fork_;
  if (is_new) epoch_end_ = (seen_ / epoch_events_ + 1) * epoch_events_;
  was_fork_ = is_fork;
  return is_new;
}

const char* ImageLoad::see(const Event& event, std::uint32_t child) {
  const bool is_fork = event.kind == trace::Kind::fork;
  if (begins_epoch(is_fork)) close_epoch();
  is_fork_ = is_fork;
  time_ns_ = event.time_ns;
  if (threads_[event.thread].has_ended) return "a thread acts after its end";
  const char* wrong = nullptr;
  switch (event.kind) {
    case trace::Kind::malloc:
    case trace::Kind::calloc:
    case trace::Kind::aligned:
      wrong = allocate(event);
      break;
    case trace::Kind::realloc:
      wrong = resize(event);
      break;
    case trace::Kind::free:
      wrong = release(event);
      break;
    case trace::Kind::refused:
      refuse(event);
      break;
    case trace::Kind::thread_begin:
      begin_thread(event);
      break;
    case trace::Kind::fork:
      fork(event, child);
      break;
    default:
      end_thread(event.thread);
      break;
  }
  if (wrong == nullptr) ++seen_;
  return wrong;
}

// An operation of the thread comes next: it has been started, and is in this epoch.
void ImageLoad::make_sure_of(std::uint32_t thread) {
  if (!threads_[thread].has_started) start(0, thread);
  if (threads_[thread].is_in_epoch) return;
  is_open_ = true;
  threads_[thread].is_in_epoch = true;
  inside_[inside_count_++] = thread;
  mark(thread, Kind::enter, epoch_, 0);
}

void ImageLoad::start(std::uint32_t creator, std::uint32_t thread) {
  make_sure_of(creator);
  threads_[thread].has_started = true;
  row_->thread_table[thread].creator = creator;
  mark(creator, Kind::start, thread, ends_);
}

void ImageLoad::leave(std::uint32_t thread) {
  if (!threads_[thread].is_in_epoch) return;
  threads_[thread].is_in_epoch = false;
  mark(thread, Kind::leave, epoch_, 0);
}

void ImageLoad::close_epoch() {
  if (!is_open_) return;
  for (std::uint32_t i = 0; i < inside_count_; ++i) leave(inside_[i]);
  if (is_filling_) {
    Epoch& row = row_->epoch_table[epoch_];
    row.live_bytes = row_->live_bytes;
    row.last_event = seen_;
    row.threads = inside_count_;
    const std::uint32_t two_before = window_ != 0 && epoch_ > 0 ? epoch_ - 1 : 0;
    row.after = std::max(is_fork_ ? epoch_ : two_before, fence_);
  }
  if (is_fork_) fence_ = epoch_ + 1;
  ++epoch_;
  inside_count_ = 0;
  is_open_ = false;
}

void ImageLoad::emit(std::uint32_t thread, const Operation& operation) {
  if (is_filling_) {
    const std::uint64_t index =
        row_->thread_table[thread].first_operation + threads_[thread].emitted;
    row_->operation_table[index] = operation;
    if (row_->times != nullptr) row_->times[index] = time_ns_;
  }
  ++threads_[thread].emitted;
  if (thread != last_thread_ || run_operations_ == none) {
    last_thread_ = thread;
    run_operations_ = 0;
    ++runs_;
  }
  ++run_operations_;
  if (is_filling_) row_->run_table[runs_ - 1] = {thread, run_operations_};
}

void ImageLoad::mark(std::uint32_t thread, Kind kind, std::uint32_t slot, std::uint32_t turn) {
  Operation operation = operation_of(kind, 0, slot);
  operation.turn = turn;
  emit(thread, operation);
}

void ImageLoad::call(std::uint32_t thread, const Operation& operation, std::uint64_t bytes) {
  ++row_->totals.calls[operation.kind];
  row_->totals.bytes[operation.kind] += bytes;
  ++row_->thread_table[thread].calls;
  emit(thread, operation);
}

void ImageLoad::order(Operation& operation, SlotState& slot, std::uint32_t thread) const {
  const bool is_others = slot.was_used && slot.thread != thread;
  if (!is_filling_) {
    if (is_others) slot.is_shared = true;
  } else if (slot.is_shared) {
    operation.flags = is_others ? flag_shared | flag_waits : flag_shared;
    operation.turn = slot.turn;
    slot.turn = (slot.turn + 1) & turn_mask;
  }
  slot.thread = thread;
  slot.was_used = true;
}

void ImageLoad::add_live(std::uint64_t bytes) {
  row_->live_bytes += bytes;
  if (row_->live_bytes <= row_->peak_live_bytes) return;
  row_->peak_live_bytes = row_->live_bytes;
  row_->peak_event = seen_;
  row_->peak_epoch = epoch_;
}

const char* ImageLoad::allocate(const Event& event) {
  SlotState& slot = slots_[event.slot];
  if (static_cast<Content>(slot.content) != Content::nothing ||
      slot.generation != event.generation) {
    return "an object is made where another lives";
  }
  if (event.size > most_bytes) {
    ++row_->left_out;
    slot.content = static_cast<std::uint8_t>(Content::left_out);
    return nullptr;
  }
  make_sure_of(event.thread);
  const Kind kind = kind_of(event.kind);
  Operation operation = operation_of(kind, event.size, event.slot);
  operation.log2_alignment = kind == Kind::aligned ? event.log2_alignment & 0x3f : 0;
  order(operation, slot, event.thread);
  slot.content = static_cast<std::uint8_t>(Content::object);
  slot.size = event.size & most_bytes;
  ++row_->live_objects;
  add_live(event.size);
  call(event.thread, operation, event.size);
  return nullptr;
}

// The slot of an event's object.
const char* ImageLoad::find(const Event& event, SlotState*& slot) const {
  slot = &slots_[event.slot];
  const bool is_there = static_cast<Content>(slot->content) != Content::nothing;
  return is_there && slot->generation == event.generation ? nullptr : "an object does not live";
}

const char* ImageLoad::resize(const Event& event) {
  SlotState* slot = nullptr;
  if (const char* const wrong = find(event, slot)) return wrong;
  if (event.size > most_bytes || static_cast<Content>(slot->content) == Content::left_out) {
    ++row_->left_out;
    return nullptr;
  }
  make_sure_of(event.thread);
  Operation operation = operation_of(Kind::realloc, event.size, event.slot);
  order(operation, *slot, event.thread);
  row_->live_bytes -= slot->size;
  add_live(event.size);
  slot->size = event.size & most_bytes;
  call(event.thread, operation, event.size);
  return nullptr;
}

const char* ImageLoad::release(const Event& event) {
  SlotState* slot = nullptr;
  if (const char* const wrong = find(event, slot)) return wrong;
  const bool is_left_out = static_cast<Content>(slot->content) == Content::left_out;
  slot->content = static_cast<std::uint8_t>(Content::nothing);
  ++slot->generation;
  if (is_left_out) {
    ++row_->left_out;
    return nullptr;
  }
  make_sure_of(event.thread);
  Operation operation = operation_of(Kind::free, 0, event.slot);
  order(operation, *slot, event.thread);
  row_->live_bytes -= slot->size;
  --row_->live_objects;
  call(event.thread, operation, slot->size);
  return nullptr;
}

void ImageLoad::refuse(const Event& event) {
  make_sure_of(event.thread);
  const bool is_cut = event.size > most_bytes;
  Operation operation = operation_of(Kind::refused, is_cut ? most_bytes : event.size, 0);
  operation.flags = is_cut ? flag_cut : 0;
  call(event.thread, operation, operation.size);
}

void ImageLoad::begin_thread(const Event& event) {
  const std::uint32_t creator = event.slot;
  const bool is_there = threads_[creator].has_started && !threads_[creator].has_ended;
  start(is_there ? creator : 0, event.thread);
}

// The first thread is the process's own, and ends with it.
void ImageLoad::end_thread(std::uint32_t thread) {
  make_sure_of(thread);
  if (thread == 0) return;
  leave(thread);
  mark(thread, Kind::end, ends_++, 0);
  threads_[thread].has_ended = true;
  row_->thread_table[thread].ends = 1;
}

void ImageLoad::fork(const Event& event, std::uint32_t child) {
  make_sure_of(event.thread);
  mark(event.thread, Kind::fork, child, 0);
}

void ImageLoad::finish() {
  close_epoch();
  row_->operations = 0;
  for (std::uint32_t t = 0; t < row_->threads; ++t) row_->operations += threads_[t].emitted;
  row_->epochs = epoch_;
  row_->runs = runs_;
  row_->ends = ends_;
}

}  // namespace ts::plan
