// Which slot a new object gets. A slot is free again when its object has been freed, so a reader's
// tables grow with the live objects, and not with every object ever made.
//
// A replay makes calls on one slot in their recorded order, so reuse must not make threads wait
// that did not wait when they were recorded. A thread first takes what it freed itself; then what
// others freed long ago; then a new slot, a cache line of the replay's table at a time, since
// threads that write to the same line slow each other down.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace ts::trace {

struct Slot {
  std::uint32_t number;
  std::uint32_t generation;  // how many objects it had before

  friend bool operator==(const Slot&, const Slot&) = default;
};

class Slots {
 public:
  // first_new: 0, or for a forked child its parent's count().
  explicit Slots(std::uint32_t first_new = 0) : count_{first_new} {}

  // `now`: the number of the event.
  Slot take(std::uint32_t thread, std::uint64_t now) {
    std::vector<Slot>& own = own_of(thread);
    if (!own.empty()) {
      const Slot slot = own.back();
      own.pop_back();
      return slot;
    }
    if (!shared_.empty() && shared_.front().freed + reuse_distance <= now) {
      const Slot slot = shared_.front().slot;
      shared_.pop_front();
      return slot;
    }
    const Slot slot{count_++, 0};
    for (; own_.size() > 1 && count_ % slots_of_a_line != 0; ++count_) own.push_back({count_, 0});
    return slot;
  }

  void give_back(Slot slot, std::uint32_t thread, std::uint64_t now) {
    ++slot.generation;
    std::vector<Slot>& own = own_of(thread);
    if (own.size() < max_own || own_.size() == 1) {
      own.push_back(slot);
    } else {
      shared_.push_back({slot, now});
    }
  }

  void end_thread(std::uint32_t thread, std::uint64_t now) {
    for (const Slot slot : own_of(thread)) shared_.push_back({slot, now});
    own_[thread] = {};
  }

  std::uint32_t count() const { return count_; }  // all slots are below

 private:
  static constexpr std::size_t max_own = 256;
  static constexpr std::uint32_t slots_of_a_line = 4;
  static constexpr std::uint64_t reuse_distance = 4096;  // in events; a replay's window is shorter

  struct Freed {
    Slot slot;
    std::uint64_t freed;
  };

  std::vector<Slot>& own_of(std::uint32_t thread) {
    if (thread >= own_.size()) own_.resize(thread + std::size_t{1});
    return own_[thread];
  }

  std::uint32_t count_;
  std::vector<std::vector<Slot>> own_{1};
  std::deque<Freed> shared_;
};

}  // namespace ts::trace
