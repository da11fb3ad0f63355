// Lists of free slots; see slot_pool.h.
#include "trace/plan/slot_pool.h"

#include "replay/plan.h"
#include "trace/format/error.h"

namespace ts::trace {
namespace {

constexpr std::uint32_t most_own = 256;  // what a thread keeps; more are for all
constexpr std::uint32_t slots_of_a_line = 4;
constexpr std::uint64_t epochs_before_reuse = 2;              // the plan's own rule: plan.h
constexpr std::uint64_t epochs_before_reuse_unlimited = 100;  // so that waiting is improbable

}  // namespace

// Each object asks for new slots once at most, and only what is used takes memory.
SlotPool::SlotPool(std::uint64_t objects, std::size_t threads, bool has_window)
    : has_window_{has_window}, states_{slots_of_a_line * (objects + 1)}, own_(threads) {}

SlotPool::SlotPool(const SlotPool& parent, const std::vector<bool>& in_use, std::uint64_t objects,
                   std::size_t threads)
    : SlotPool{parent.count_ + objects, threads, parent.has_window_} {
  count_ = parent.count_;
  states_.copy_from(parent.states_, count_);
  for (std::uint32_t slot = count_; slot-- > 0;) {
    if (in_use[slot]) {
      set(slot, 0, size(slot));
    } else {
      push_own(slot, 0);
    }
  }
}

std::uint64_t SlotPool::size(std::uint32_t slot) const {
  return states_[slot].low | (std::uint64_t{states_[slot].high & 0xff} << 32);
}

void SlotPool::set(std::uint32_t slot, std::uint32_t thread, std::uint64_t size) {
  states_[slot].low = static_cast<std::uint32_t>(size);
  states_[slot].high = (thread << 8) | static_cast<std::uint32_t>(size >> 32);
}

std::uint32_t SlotPool::pass_turn(std::uint32_t slot) {
  const std::uint32_t turn = states_[slot].turn;
  states_[slot].turn = (turn + 1) & plan::turn_mask;
  return turn;
}

std::uint32_t SlotPool::take_own(std::uint32_t thread) {
  Own& own = own_[thread];
  const std::uint32_t slot = own.first - 1;
  own.first = states_[slot].low;
  --own.count;
  return slot;
}

void SlotPool::push_own(std::uint32_t slot, std::uint32_t thread) {
  Own& own = own_[thread];
  states_[slot].low = own.first;
  own.first = slot + 1;
  ++own.count;
}

bool SlotPool::is_old_enough(std::uint32_t slot, std::uint64_t epoch) const {
  const std::uint64_t distance = has_window_ ? epochs_before_reuse : epochs_before_reuse_unlimited;
  return states_[slot].high + distance <= epoch;
}

SlotPool::Slot SlotPool::take(std::uint32_t thread, std::uint64_t size, std::uint64_t epoch) {
  Slot slot = {0, false};
  if (own_[thread].first != 0) {
    slot.number = take_own(thread);
  } else if (oldest_ != 0 && is_old_enough(oldest_ - 1, epoch)) {
    slot.number = oldest_ - 1;
    slot.may_be_in_use = !has_window_;
    oldest_ = states_[slot.number].low;
    if (oldest_ == 0) newest_ = 0;
  } else {
    if (count_ >= plan::none - slots_of_a_line) {
      throw Error{"the trace has more live objects than a plan can have slots (2^32)."};
    }
    slot.number = count_++;
    const bool is_alone = own_.size() == 1;
    for (std::uint32_t i = 1; i < slots_of_a_line && !is_alone; ++i) {
      push_own(slot.number + slots_of_a_line - i, thread);
      ++count_;
    }
  }
  set(slot.number, thread, size);
  return slot;
}

void SlotPool::give_to_all(std::uint32_t slot, std::uint64_t epoch) {
  states_[slot].low = 0;
  states_[slot].high = static_cast<std::uint32_t>(epoch);
  if (newest_ != 0) {
    states_[newest_ - 1].low = slot + 1;
  } else {
    oldest_ = slot + 1;
  }
  newest_ = slot + 1;
}

void SlotPool::release(std::uint32_t slot, std::uint32_t thread, std::uint64_t epoch) {
  if (own_[thread].count < most_own || own_.size() == 1) {
    push_own(slot, thread);
  } else {
    give_to_all(slot, epoch);
  }
}

void SlotPool::end_thread(std::uint32_t thread, std::uint64_t epoch) {
  while (own_[thread].first != 0) give_to_all(take_own(thread), epoch);
}

}  // namespace ts::trace
