// Whether a plan makes sense: all of its operations, in the recorded order.
//
// Why it exists: replay runs a plan without looking, so that a replay's time is the allocator's; a
// damaged plan would free what is not there, or wait for ever. What it refuses to do: accept what
// it cannot prove. It walks through the recorded order and finds each operation able to run when it
// comes: its turn is there, its epochs are done, its thread has started. So that order keeps all
// the plan's orders, they contain no circle, and under any schedule some thread can go on until all
// have ended. It proves likewise that operations on one slot by two threads are ordered by a turn
// or by an epoch, and that the plan's sums are right.
#include <cstring>

#include "replay/pages.h"
#include "replay/plan_view.h"

namespace ts::replay {
namespace {

using plan::Kind;
using plan::Operation;

struct SlotState {
  std::uint64_t size;
  std::uint32_t turn;
  std::uint32_t thread;  // of the last operation
  std::uint32_t
      done_epochs;  // how many must be done for the last operation to be in the past of all
  bool is_live;
  bool was_shared;  // the last operation
};

struct ThreadState {
  std::uint64_t done;
  std::uint64_t calls;
  std::uint32_t epoch;  // in which it is; plan::none: in none
  bool has_started;
  bool has_ended;
};

// The state that the checks of all images share.
struct Tree {
  const plan::View& view;
  plan::Problem& problem;
  std::uint32_t checked = 0;  // images
};

class ImageCheck {
 public:
  ImageCheck(Tree& tree, std::uint32_t place, const Mapped<SlotState>* inherited);
  bool run();

 private:
  // Each returns null, or what is wrong.
  const char* visit(std::uint32_t thread, const Operation& operation);
  const char* call(std::uint32_t thread, const Operation& operation);
  const char* touch(std::uint32_t thread, SlotState& slot, const Operation& operation) const;
  const char* enter(ThreadState& thread, std::uint32_t epoch);
  const char* leave(ThreadState& thread, std::uint32_t epoch);
  const char* start(const Operation& operation);
  const char* end(std::uint32_t number, ThreadState& thread, const Operation& operation);
  const char* fork(const ThreadState& thread, const Operation& operation);
  const char* compare_sums() const;
  void add_live(std::uint64_t bytes);
  bool refuse(const char* what, std::uint32_t thread, std::uint64_t operation) const;

  Tree& tree_;
  std::uint32_t place_;
  const plan::Image& image_;
  const plan::Epoch* epochs_;
  Mapped<SlotState> slots_;
  Mapped<ThreadState> threads_;
  Mapped<std::uint64_t> cursors_;
  Mapped<std::uint32_t> entered_;
  Mapped<std::uint32_t> left_;
  plan::Totals totals_{};
  std::uint64_t live_bytes_ = 0;
  std::uint64_t live_objects_ = 0;
  std::uint64_t peak_live_bytes_ = 0;
  std::uint64_t ends_ = 0;
  std::uint32_t done_epochs_ = 0;
  bool is_child_refused_ = false;
};

ImageCheck::ImageCheck(Tree& tree, std::uint32_t place, const Mapped<SlotState>* inherited)
    : tree_{tree},
      place_{place},
      image_{tree.view.image(place)},
      epochs_{tree.view.epochs(image_)},
      slots_{image_.slots, Backing::private_on_demand},
      threads_{image_.threads, Backing::private_on_demand},
      cursors_{image_.threads, Backing::private_on_demand},
      entered_{image_.epochs, Backing::private_on_demand},
      left_{image_.epochs, Backing::private_on_demand} {
  for (ThreadState& thread : threads_) thread.epoch = plan::none;
  threads_[0].has_started = true;
  if (inherited == nullptr) return;
  for (std::size_t i = 0; i < inherited->size() && i < slots_.size(); ++i) {
    slots_[i] = (*inherited)[i];
    slots_[i].thread = 0;
    slots_[i].done_epochs = 0;
    if (slots_[i].is_live) {
      live_bytes_ += slots_[i].size;
      ++live_objects_;
    }
  }
  peak_live_bytes_ = live_bytes_;
}

bool ImageCheck::refuse(const char* what, std::uint32_t thread, std::uint64_t operation) const {
  return plan::refuse(
      tree_.problem,
      "the plan is damaged: image %u, thread %u, operation %llu: %s; make it again with "
      "`trace plan`.",
      image_.number, thread, static_cast<unsigned long long>(operation), what);
}

void ImageCheck::add_live(std::uint64_t bytes) {
  live_bytes_ += bytes;
  if (live_bytes_ > peak_live_bytes_) peak_live_bytes_ = live_bytes_;
}

// Ordered after the last operation on the slot?
const char* ImageCheck::touch(std::uint32_t thread, SlotState& slot,
                              const Operation& operation) const {
  const bool is_shared = (operation.flags & plan::flag_shared) != 0;
  const bool waits = (operation.flags & plan::flag_waits) != 0;
  if (waits && !is_shared) return "waits for a turn that it has not";
  if (is_shared && operation.turn != slot.turn) return "its turn never comes";
  const std::uint32_t epoch = threads_[thread].epoch;
  const bool is_ordered = slot.thread == thread || slot.done_epochs <= epochs_[epoch].after ||
                          (waits && slot.was_shared);
  if (!is_ordered) return "it races with another thread's for its slot";
  if (is_shared) slot.turn = (slot.turn + 1) & plan::turn_mask;
  slot.thread = thread;
  slot.done_epochs = epoch + 1;
  slot.was_shared = is_shared;
  return nullptr;
}

const char* ImageCheck::call(std::uint32_t thread, const Operation& operation) {
  const auto kind = static_cast<Kind>(operation.kind);
  ++totals_.calls[operation.kind];
  ++threads_[thread].calls;
  if (kind == Kind::refused) {
    totals_.bytes[operation.kind] += operation.size;
    return nullptr;
  }
  if (operation.slot >= image_.slots) return "there is no such slot";
  SlotState& slot = slots_[operation.slot];
  const bool is_new = kind <= Kind::aligned;
  if (slot.is_live == is_new) return is_new ? "its slot is not empty" : "its slot is empty";
  if (const char* const wrong = touch(thread, slot, operation)) return wrong;
  if (kind == Kind::free) {
    totals_.bytes[operation.kind] += slot.size;
    live_bytes_ -= slot.size;
    --live_objects_;
    slot.is_live = false;
    return nullptr;
  }
  totals_.bytes[operation.kind] += operation.size;
  if (is_new) {
    ++live_objects_;
    slot.is_live = true;
  } else {
    live_bytes_ -= slot.size;
  }
  slot.size = operation.size;
  add_live(operation.size);
  return nullptr;
}

const char* ImageCheck::enter(ThreadState& thread, std::uint32_t epoch) {
  if (thread.epoch != plan::none) return "it enters an epoch in another one";
  if (epoch >= image_.epochs) return "there is no such epoch";
  if (epochs_[epoch].after > done_epochs_) return "its epoch never begins";
  if (epoch < done_epochs_) return "its epoch is over";
  if (++entered_[epoch] > epochs_[epoch].threads) return "too many threads enter its epoch";
  thread.epoch = epoch;
  return nullptr;
}

const char* ImageCheck::leave(ThreadState& thread, std::uint32_t epoch) {
  if (thread.epoch != epoch || epoch == plan::none) return "it leaves an epoch that it is not in";
  thread.epoch = plan::none;
  if (++left_[epoch] == epochs_[epoch].threads && epochs_[epoch].live_bytes != live_bytes_) {
    return "the live bytes at the end of its epoch are others";
  }
  while (done_epochs_ < image_.epochs && left_[done_epochs_] == epochs_[done_epochs_].threads) {
    ++done_epochs_;
  }
  return nullptr;
}

const char* ImageCheck::start(const Operation& operation) {
  if (operation.slot == 0 || operation.slot >= image_.threads) return "there is no such thread";
  if (threads_[operation.slot].has_started) return "the thread has been started";
  if (operation.turn > ends_) return "it waits for an end that comes later";
  threads_[operation.slot].has_started = true;
  return nullptr;
}

const char* ImageCheck::end(std::uint32_t number, ThreadState& thread, const Operation& operation) {
  const plan::Thread& planned = tree_.view.threads(image_)[number];
  if (number == 0 || planned.ends == 0) return "the thread is not to end";
  if (thread.epoch != plan::none) return "the thread ends in an epoch";
  if (thread.done != planned.operations) return "operations follow the thread's end";
  if (operation.slot != ends_) return "its end comes at another place";
  thread.has_ended = true;
  ++ends_;
  return nullptr;
}

const char* ImageCheck::fork(const ThreadState& thread, const Operation& operation) {
  const std::uint32_t epoch = thread.epoch;
  if (epochs_[epoch].threads != 1 || epochs_[epoch].after != epoch) {
    return "it forks while others may run";
  }
  // All later epochs, as `after` never falls, which run() has checked.
  if (epoch + 1 < image_.epochs && epochs_[epoch + 1].after <= epoch) {
    return "others need not wait for its fork";
  }
  if (operation.slot == plan::none) return nullptr;
  if (operation.slot <= place_ || operation.slot >= tree_.view.images() ||
      tree_.view.image(operation.slot).parent != place_) {
    return "there is no such child";
  }
  ImageCheck child{tree_, operation.slot, &slots_};
  is_child_refused_ = !child.run();
  return is_child_refused_ ? "" : nullptr;
}

const char* ImageCheck::visit(std::uint32_t thread, const Operation& operation) {
  ThreadState& state = threads_[thread];
  ++state.done;
  if (!state.has_started) return "the thread has not been started";
  if (state.has_ended) return "the thread has ended";
  const auto kind = static_cast<Kind>(operation.kind);
  if (kind == Kind::enter) return enter(state, operation.slot);
  if (kind == Kind::leave) return leave(state, operation.slot);
  if (kind == Kind::end) return end(thread, state, operation);
  if (kind >= Kind::count) return "there is no such operation";
  if (state.epoch == plan::none) return "it belongs to no epoch";
  if (kind == Kind::start) return start(operation);
  if (kind == Kind::fork) return fork(state, operation);
  return call(thread, operation);
}

const char* ImageCheck::compare_sums() const {
  if (std::memcmp(&totals_, &image_.totals, sizeof totals_) != 0) {
    return "the calls, or their bytes, are not those that the plan says";
  }
  if (live_bytes_ != image_.live_bytes || live_objects_ != image_.live_objects) {
    return "what is live at the end is not what the plan says";
  }
  if (peak_live_bytes_ != image_.peak_live_bytes) return "the peak is not what the plan says";
  if (ends_ != image_.ends || done_epochs_ != image_.epochs) return "it does not come to its end";
  return nullptr;
}

bool ImageCheck::run() {
  ++tree_.checked;
  if (image_.inherited_bytes != live_bytes_ || image_.inherited_objects != live_objects_) {
    return refuse("what it inherits is not what its parent has", 0, 0);
  }
  // Replay makes all slots resident. A planner adds as many as fill a cache line when it adds one.
  const std::uint64_t inherited = place_ == 0 ? 0 : tree_.view.image(image_.parent).slots;
  if (image_.slots > 4 * image_.operations + inherited) {
    return refuse("it has more slots than it could use", 0, 0);
  }
  for (std::size_t e = 0; e < image_.epochs; ++e) {
    if (epochs_[e].threads == 0 || epochs_[e].after > e ||
        (e > 0 && epochs_[e].after < epochs_[e - 1].after)) {
      return refuse("an epoch has no thread in it, or waits for later ones", 0, e);
    }
  }
  const char* wrong = nullptr;
  std::uint32_t wrong_thread = 0;
  std::uint64_t wrong_operation = 0;
  const bool is_complete = plan::in_recorded_order(
      tree_.view, image_, cursors_.begin(),
      [&](std::uint32_t thread, std::uint64_t /*index*/, const Operation& operation) {
        if (wrong != nullptr) return;
        wrong = visit(thread, operation);
        wrong_thread = thread;
        wrong_operation = threads_[thread].done - 1;
      });
  if (is_child_refused_) return false;  // which has said why
  if (wrong == nullptr && !is_complete) wrong = "the recorded order does not have all operations";
  if (wrong == nullptr) wrong = compare_sums();
  for (std::uint32_t t = 0; t < image_.threads && wrong == nullptr; ++t) {
    const plan::Thread& planned = tree_.view.threads(image_)[t];
    wrong_thread = t;
    if (threads_[t].calls != planned.calls) wrong = "its calls are not as many as the plan says";
    if (threads_[t].has_ended != (planned.ends != 0)) wrong = "it does not come to its end";
    if (!threads_[t].has_started) wrong = "it is never started";
  }
  return wrong == nullptr || refuse(wrong, wrong_thread, wrong_operation);
}

}  // namespace

bool check_plan(const plan::View& view, plan::Problem& problem) {
  Tree tree{view, problem};
  ImageCheck first{tree, 0, nullptr};
  if (!first.run()) return false;
  if (tree.checked == view.images()) return true;
  return plan::refuse(
      problem,
      "the plan is damaged: it forks %u of its %u images; make it again with `trace plan`.",
      tree.checked, view.images());
}

}  // namespace ts::replay
