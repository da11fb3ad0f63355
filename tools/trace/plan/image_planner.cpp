// The second reading; see image_planner.h.
#include "trace/plan/image_planner.h"

#include <algorithm>
#include <utility>

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
    case Kind::realloc:
      return plan::Kind::realloc;
    default:
      return plan::Kind::malloc;
  }
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
  if (tree_.settings.with_times) row_.times_offset = file.reserve(operations * sizeof(std::uint64_t));

  const std::size_t buffer =
      std::clamp(all_buffers_bytes / count, least_buffer_bytes, most_buffer_bytes);
  std::uint64_t first = 0;
  threads_.reserve(count);
  for (const ThreadSurvey& thread : survey_.threads) {
    const std::uint64_t offset = row_.operations_offset + first * sizeof(plan::Operation);
    threads_.push_back({{file, offset, thread.operations, buffer}});
    Thread& planned = threads_.back();
    planned.row.first_operation = first;
    planned.row.creator = plan::none;
    if (tree_.settings.with_times) {
      const std::uint64_t times = row_.times_offset + first * sizeof(std::uint64_t);
      planned.times.emplace_back(file, times, thread.operations, buffer);
    }
    first += thread.operations;
  }
  threads_[0].has_started = true;
  epochs_.emplace_back(file, row_.epochs_offset, survey_.epochs, most_buffer_bytes);
  runs_.emplace_back(file, row_.runs_offset, survey_.runs, most_buffer_bytes);
}

void ImagePlanner::inherit(const ImagePlanner& parent) {
  std::vector<bool> in_use(parent.slots_.count());
  const std::uint64_t objects = std::min<std::uint64_t>(trace_image_.first_object,
                                                        parent.slots_of_.size());
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
  is_fork_ = is_fork && !tree_.settings.alone;
  number_ = number;
  time_ns_ = event.time_ns;
  row_.events = number + 1;
  switch (event.kind) {
    case Kind::malloc:
    case Kind::calloc:
    case Kind::aligned:
      allocate(event);
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
  epochs_.front().add(row);
  if (is_fork_) fence_ = epoch_ + 1;
  ++epoch_;
  inside_.clear();
  is_open_ = false;
}

void ImagePlanner::emit(std::uint32_t thread, const plan::Operation& operation) {
  threads_[thread].operations.add(operation);
  if (!threads_[thread].times.empty()) threads_[thread].times.front().add(time_ns_);
  Column<plan::Run>& runs = runs_.front();
  if (thread == last_thread_ && runs.last().operations != plan::none) {
    ++runs.last().operations;
  } else {
    runs.add({thread, 1});
    last_thread_ = thread;
  }
}

void ImagePlanner::mark(std::uint32_t thread, plan::Kind kind, std::uint32_t slot,
                        std::uint32_t turn) {
  plan::Operation operation = {};
  operation.kind = static_cast<std::uint64_t>(kind) & 0xf;
  operation.slot = slot;
  operation.turn = turn;
  emit(thread, operation);
}

// A call: freed_bytes are those of `free`, which has no size of its own.
void ImagePlanner::call(std::uint32_t thread, plan::Operation operation, std::uint64_t bytes) {
  const std::size_t kind = operation.kind;
  ++row_.totals.calls[kind];
  row_.totals.bytes[kind] += bytes;
  ++threads_[thread].row.calls;
  emit(thread, operation);
}

}  // namespace ts::trace
