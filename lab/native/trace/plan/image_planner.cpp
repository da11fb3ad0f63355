// The second reading; see image_planner.h.
#include "trace/plan/image_planner.h"

#include <algorithm>
#include <utility>

#include "trace/choose.h"
#include "trace/format/error.h"

namespace ts::trace {
namespace {

constexpr std::size_t most_buffer_bytes = 64 << 10;
constexpr std::size_t least_buffer_bytes = 256;
constexpr std::size_t all_buffers_bytes = 64 << 20;

plan::Kind kind_of(Kind kind) {
  switch (kind) {
    case Kind::calloc:
      return plan::Kind::calloc;
    case Kind::aligned:
      return plan::Kind::aligned;
    default:
      return plan::Kind::malloc;
  }
}

plan::Operation operation_of(plan::Kind kind, std::uint64_t size, std::uint32_t slot) {
  plan::Operation operation = {};
  operation.size = size & plan::most_bytes;
  operation.kind = static_cast<std::uint64_t>(kind) & 0xf;
  operation.slot = slot;
  return operation;
}

SlotPool pool_of(const Survey& survey, bool has_window) {
  return SlotPool{survey.objects, survey.threads.size(), has_window};
}

}  // namespace

ImagePlanner::ImagePlanner(PlanTree& tree, const Image& image, std::uint32_t place,
                           const ImagePlanner* parent)
    : tree_{tree},
      trace_image_{image},
      place_{place},
      survey_{survey(tree.reader, image, tree.settings.window)},
      ranges_{survey_.epoch_events},
      slots_{pool_of(survey_, tree.settings.window != 0)},
      slots_of_{survey_.objects} {
  row_.number = image.number;
  row_.parent = parent != nullptr ? parent->place_ : plan::none;
  lay_out();
  if (parent != nullptr) inherit(*parent);
  row_.peak_live_bytes = row_.live_bytes;
}

void ImagePlanner::lay_out() {
  PlanFile& file = tree_.file;
  const std::size_t count = survey_.threads.size();
  std::uint64_t operations = 0;
  for (const ThreadSurvey& thread : survey_.threads) operations += thread.operations;
  row_.threads = static_cast<std::uint32_t>(count);
  row_.operations = operations;
  row_.threads_offset = file.reserve(count * sizeof(plan::Thread));
  row_.operations_offset = file.reserve(operations * sizeof(plan::Operation));
  row_.epochs_offset = file.reserve(survey_.epochs * sizeof(plan::Epoch));
  row_.runs_offset = file.reserve(survey_.runs * sizeof(plan::Run));
  if (tree_.settings.with_times)
    row_.times_offset = file.reserve(operations * sizeof(std::uint64_t));

  const std::size_t buffer =
      std::clamp(all_buffers_bytes / count, least_buffer_bytes, most_buffer_bytes);
  std::uint64_t first = 0;
  threads_.reserve(count);
  for (const ThreadSurvey& thread : survey_.threads) {
    const std::uint64_t offset = row_.operations_offset + first * sizeof(plan::Operation);
    Thread& planned = threads_.emplace_back(Thread{{file, offset, thread.operations, buffer}, {}});
    planned.row.first_operation = first;
    planned.row.creator = plan::none;
    if (tree_.settings.with_times) {
      const std::uint64_t times = row_.times_offset + first * sizeof(std::uint64_t);
      planned.times.emplace(file, times, thread.operations, buffer);
    }
    first += thread.operations;
  }
  threads_[0].has_started = true;
  epochs_.emplace(file, row_.epochs_offset, survey_.epochs, most_buffer_bytes);
  runs_.emplace(file, row_.runs_offset, survey_.runs, most_buffer_bytes);
}

void ImagePlanner::inherit(const ImagePlanner& parent) {
  std::vector<bool> in_use(parent.slots_.count());
  const std::uint64_t objects =
      std::min<std::uint64_t>(trace_image_.first_object, parent.slots_of_.size());
  for (std::uint64_t object = 0; object < objects; ++object) {
    const std::uint32_t slot = parent.slots_of_[object];
    if (slot == 0) continue;
    in_use[slot - 1] = true;
    slots_of_[object] = slot;
    row_.inherited_bytes += parent.slots_.size(slot - 1);
    ++row_.inherited_objects;
  }
  slots_ = SlotPool{parent.slots_, in_use, survey_.objects, survey_.threads.size()};
  row_.live_bytes = row_.inherited_bytes;
  row_.live_objects = row_.inherited_objects;
}

void ImagePlanner::run() {
  Cursor cursor = tree_.reader.events(trace_image_.number);
  for (Event event; cursor.next(event);) {
    if (cursor.gap() != nullptr) tree_.summary.has_gaps = true;
    plan(event, cursor.number());
  }
  if (cursor.gap() != nullptr) tree_.summary.has_gaps = true;
  finish();
}

void ImagePlanner::plan(const Event& event, std::uint64_t number) {
  const bool is_fork = event.kind == Kind::fork;
  if (ranges_.begins(number, is_fork)) close_epoch();
  is_fork_ = is_fork;
  number_ = number;
  time_ns_ = event.time_ns;
  row_.events = number + 1;
  switch (event.kind) {
    case Kind::malloc:
    case Kind::calloc:
    case Kind::aligned:
      allocate(event, kind_of(event.kind));
      break;
    case Kind::realloc:
      resize(event);
      break;
    case Kind::free:
      release(event);
      break;
    case Kind::refused:
      refuse(event);
      break;
    case Kind::thread_begin:
      begin_thread(event);
      break;
    case Kind::fork:
      fork(event);
      break;
    default:
      make_sure_of(event.thread);  // of a thread that only ends, too
      break;
  }
  end_if_last(event.thread, number);
  if (event.kind == Kind::thread_begin && event.object < threads_.size()) {
    end_if_last(static_cast<std::uint32_t>(event.object), number);
  }
}

// An operation of the thread comes next: it has been started, and is in this epoch.
void ImagePlanner::make_sure_of(std::uint32_t thread) {
  if (!threads_[thread].has_started) start(0, thread);
  if (threads_[thread].is_in_epoch) return;
  is_open_ = true;
  threads_[thread].is_in_epoch = true;
  inside_.push_back(thread);
  mark(thread, plan::Kind::enter, epoch_, 0);
}

void ImagePlanner::start(std::uint32_t creator, std::uint32_t thread) {
  make_sure_of(creator);
  threads_[thread].has_started = true;
  threads_[thread].row.creator = creator;
  mark(creator, plan::Kind::start, thread, ends_);
}

void ImagePlanner::leave(std::uint32_t thread) {
  if (!threads_[thread].is_in_epoch) return;
  threads_[thread].is_in_epoch = false;
  mark(thread, plan::Kind::leave, epoch_, 0);
}

void ImagePlanner::close_epoch() {
  if (!is_open_) return;
  for (const std::uint32_t thread : inside_) leave(thread);
  plan::Epoch row = {};
  row.live_bytes = row_.live_bytes;
  row.last_event = row_.events;
  row.threads = static_cast<std::uint32_t>(inside_.size());
  const bool has_window = tree_.settings.window != 0;
  const std::uint32_t two_before = has_window && epoch_ > 0 ? epoch_ - 1 : 0;
  row.after = std::max(is_fork_ ? epoch_ : two_before, fence_);
  epochs_->add(row);
  if (is_fork_) fence_ = epoch_ + 1;
  ++epoch_;
  inside_.clear();
  is_open_ = false;
}

void ImagePlanner::emit(std::uint32_t thread, const plan::Operation& operation) {
  threads_[thread].operations.add(operation);
  if (threads_[thread].times) threads_[thread].times->add(time_ns_);
  Column<plan::Run>& runs = *runs_;
  if (thread == last_thread_ && runs.last().operations != plan::none) {
    ++runs.last().operations;
  } else {
    runs.add({thread, 1});
    last_thread_ = thread;
  }
}

void ImagePlanner::mark(std::uint32_t thread, plan::Kind kind, std::uint32_t slot,
                        std::uint32_t turn) {
  plan::Operation operation = operation_of(kind, 0, slot);
  operation.turn = turn;
  emit(thread, operation);
}

void ImagePlanner::call(std::uint32_t thread, const plan::Operation& operation,
                        std::uint64_t bytes) {
  const std::size_t kind = operation.kind;
  ++row_.totals.calls[kind];
  row_.totals.bytes[kind] += bytes;
  ++threads_[thread].row.calls;
  emit(thread, operation);
}

void ImagePlanner::order(plan::Operation& operation, bool is_shared, bool waits) {
  if (!is_shared && !waits) return;
  operation.flags = waits ? plan::flag_shared | plan::flag_waits : plan::flag_shared;
  operation.turn = slots_.pass_turn(operation.slot);
}

void ImagePlanner::add_live(std::uint64_t bytes) {
  row_.live_bytes += bytes;
  if (row_.live_bytes <= row_.peak_live_bytes) return;
  row_.peak_live_bytes = row_.live_bytes;
  row_.peak_event = number_;
  row_.peak_epoch = epoch_;
}

void ImagePlanner::allocate(const Event& event, plan::Kind kind) {
  if (event.object >= slots_of_.size() || slots_of_[event.object] != 0 ||
      event.size > plan::most_bytes) {
    ++row_.left_out;
    return;
  }
  make_sure_of(event.thread);
  const SlotPool::Slot slot = slots_.take(event.thread, event.size, epoch_);
  slots_of_[event.object] = slot.number + 1;
  plan::Operation operation = operation_of(kind, event.size, slot.number);
  operation.log2_alignment = kind == plan::Kind::aligned ? event.log2_alignment & 0x3f : 0;
  order(operation, survey_.is_shared[event.object], slot.may_be_in_use);
  ++row_.live_objects;
  add_live(event.size);
  call(event.thread, operation, event.size);
}

void ImagePlanner::resize(const Event& event) {
  // Its allocation is lost: from here on, it is an object.
  if (!is_known(event.object)) return allocate(event, plan::Kind::malloc);
  if (event.size > plan::most_bytes) {
    ++row_.left_out;
    return;
  }
  make_sure_of(event.thread);
  const std::uint32_t slot = slots_of_[event.object] - 1;
  plan::Operation operation = operation_of(plan::Kind::realloc, event.size, slot);
  order(operation, survey_.is_shared[event.object], slots_.thread(slot) != event.thread);
  row_.live_bytes -= slots_.size(slot);
  add_live(event.size);
  slots_.set(slot, event.thread, event.size);
  call(event.thread, operation, event.size);
}

void ImagePlanner::release(const Event& event) {
  if (!is_known(event.object)) {
    ++row_.left_out;
    return;
  }
  make_sure_of(event.thread);
  const std::uint32_t slot = slots_of_[event.object] - 1;
  const std::uint64_t bytes = slots_.size(slot);
  plan::Operation operation = operation_of(plan::Kind::free, 0, slot);
  // Without a window nothing but turns tells the slot's next thread that it is free.
  const bool has_window = tree_.settings.window != 0;
  order(operation, survey_.is_shared[event.object] || !has_window,
        slots_.thread(slot) != event.thread);
  row_.live_bytes -= bytes;
  --row_.live_objects;
  slots_of_[event.object] = 0;
  slots_.release(slot, event.thread, epoch_);
  call(event.thread, operation, bytes);
}

void ImagePlanner::refuse(const Event& event) {
  make_sure_of(event.thread);
  const bool is_cut = event.size > plan::most_bytes;
  plan::Operation operation =
      operation_of(plan::Kind::refused, is_cut ? plan::most_bytes : event.size, 0);
  operation.flags = is_cut ? plan::flag_cut : 0;
  call(event.thread, operation, operation.size);
}

void ImagePlanner::begin_thread(const Event& event) {
  const bool is_new = event.thread != 0 && !threads_[event.thread].has_started;
  if (!is_new) return;
  const bool is_creator_there = event.object < threads_.size() && event.object != event.thread &&
                                !threads_[event.object].has_ended;
  start(is_creator_there ? static_cast<std::uint32_t>(event.object) : 0, event.thread);
}

void ImagePlanner::end_if_last(std::uint32_t thread, std::uint64_t number) {
  const ThreadSurvey& surveyed = survey_.threads[thread];
  Thread& planned = threads_[thread];
  // The first thread is the process's own, and ends with it.
  if (thread == 0 || !surveyed.ends || surveyed.last_event != number || planned.has_ended) return;
  if (!planned.has_started) start(0, thread);
  leave(thread);
  mark(thread, plan::Kind::end, ends_++, 0);
  planned.has_ended = true;
  planned.row.ends = 1;
  planned.finish();
  slots_.end_thread(thread, epoch_);
}

std::uint32_t ImagePlanner::place_of_child(std::uint64_t number) const {
  const bool is_number = number > trace_image_.number && number < no_image;
  const Image* const child =
      is_number ? tree_.reader.find_image(static_cast<std::uint32_t>(number)) : nullptr;
  if (child == nullptr || child->birth != Image::Birth::fork ||
      child->parent != trace_image_.number) {
    return plan::none;
  }
  for (const plan::Image& planned : tree_.summary.images) {
    if (planned.number == number) return plan::none;  // no image is forked twice
  }
  return static_cast<std::uint32_t>(tree_.summary.images.size());
}

void ImagePlanner::fork(const Event& event) {
  if (!threads_[event.thread].has_started) {  // by another, which must not be in the fork's epoch
    is_fork_ = false;
    make_sure_of(event.thread);
    close_epoch();
    is_fork_ = true;
  }
  make_sure_of(event.thread);
  const std::uint32_t place = place_of_child(event.object);
  mark(event.thread, plan::Kind::fork, place, 0);
  if (place == plan::none) return;
  const Image& image = *tree_.reader.find_image(static_cast<std::uint32_t>(event.object));
  plan::Image row = {};
  row.number = image.number;
  tree_.summary.images.push_back(row);
  ImagePlanner child{tree_, image, place, this};
  child.run();
}

void ImagePlanner::finish() {
  if (is_fork_) close_epoch();
  is_fork_ = false;
  for (std::uint32_t t = 0; t < threads_.size(); ++t) {
    if (!threads_[t].has_started) start(0, t);  // nothing of it is left but its number
  }
  close_epoch();
  std::vector<plan::Thread> rows;
  rows.reserve(threads_.size());
  for (Thread& thread : threads_) {
    if (!thread.has_ended) thread.finish();
    rows.push_back(thread.row);
  }
  tree_.file.write(row_.threads_offset, rows.data(), rows.size() * sizeof(plan::Thread));
  row_.epochs = static_cast<std::uint32_t>(epochs_->size());
  row_.runs = runs_->size();
  epochs_->finish();
  runs_->finish();
  row_.slots = slots_.count();
  row_.ends = ends_;
  tree_.summary.images[place_] = row_;
}

PlanSummary write_plan(const Reader& reader, const PlanSettings& settings, const std::string& path,
                       bool force) {
  const Image& image = choose_program(reader, settings.image);
  PlanFile file{path, force};
  PlanTree tree{reader, settings, file, {}};
  tree.summary.images.push_back({});
  ImagePlanner first{tree, image, 0, nullptr};
  first.run();
  file.finish(tree.summary.images, settings.window);

  PlanSummary& summary = tree.summary;
  summary.bytes = file.bytes();
  for (const Image& other : reader.images()) {
    const bool is_planned =
        std::any_of(summary.images.begin(), summary.images.end(),
                    [&](const plan::Image& planned) { return planned.number == other.number; });
    if (!is_planned) summary.not_planned.push_back(other.number);
  }
  return summary;
}

}  // namespace ts::trace
