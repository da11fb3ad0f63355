// Which slot an object gets, and which object had it before.
//
// Why it exists: replay keeps the pointers of live objects, so slots are reused. Reuse must make no
// thread wait that did not wait when it was recorded. What it refuses to do: be fair to memory at
// that price. A thread takes first what it has freed itself; then what others freed two epochs ago,
// or long ago in a plan without window; then new ones, a cache line at a time, since threads that
// write into one line wait for each other, too.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/plan/reserved_array.h"

namespace ts::trace {

class SlotPool {
 public:
  struct Slot {
    std::uint32_t number;
    bool may_be_in_use;  // its last operation may come later, in a replay
  };

  // objects: that it will be asked for, at most.
  SlotPool(std::uint64_t objects, std::size_t threads, bool has_window);

  // A pool for a child that is forked: the same slots, all of which are its first thread's now,
  // those in use (parent.count() of bool) and those that are free.
  SlotPool(const SlotPool& parent, const std::vector<bool>& in_use, std::uint64_t objects,
           std::size_t threads);

  Slot take(std::uint32_t thread, std::uint64_t size, std::uint64_t epoch);
  void release(std::uint32_t slot, std::uint32_t thread, std::uint64_t epoch);
  void end_thread(std::uint32_t thread, std::uint64_t epoch);  // what it has freed is for all

  // Of a slot in use.
  std::uint64_t size(std::uint32_t slot) const;
  std::uint32_t thread(std::uint32_t slot) const { return states_[slot].high >> 8; }
  void set(std::uint32_t slot, std::uint32_t thread, std::uint64_t size);

  // The next turn of the slot.
  std::uint32_t pass_turn(std::uint32_t slot);

  std::uint32_t count() const { return count_; }

 private:
  // Twelve bytes, since there is one for each object live at the peak. In use: low and the lowest
  // byte of high are the size, the rest of high the thread. Free: low is the next free slot and 1,
  // high the epoch in which it came to all.
  struct State {
    std::uint32_t turn;
    std::uint32_t low;
    std::uint32_t high;
  };
  struct Own {
    std::uint32_t first = 0;  // and 1; 0: none
    std::uint32_t count = 0;
  };

  std::uint32_t take_own(std::uint32_t thread);
  void push_own(std::uint32_t slot, std::uint32_t thread);
  void give_to_all(std::uint32_t slot, std::uint64_t epoch);
  bool is_old_enough(std::uint32_t slot, std::uint64_t epoch) const;

  bool has_window_;
  ReservedArray<State> states_;
  std::uint32_t count_ = 0;
  std::vector<Own> own_;
  // In the order in which they came, slot and 1; 0: none.
  std::uint32_t oldest_ = 0;
  std::uint32_t newest_ = 0;
};

}  // namespace ts::trace
