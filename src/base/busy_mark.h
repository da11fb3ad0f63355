// Marks state that a thread is changing, for the child of a fork.
#pragma once

#include "base/atomic.h"

namespace ts {

// Set while a thread changes its own state, for the lifetime of this object; marks of one thread
// nest. If the mark is set in the child of a fork, the state was caught in mid-change and is
// unusable. Why this works: until a fork has write-protected and flushed a page, the parent's
// stores to it reach the child too; afterwards they fault and wait. So the child sees all stores of
// each thread up to one point of its program order, and the barriers keep the order: set, change,
// clear.
class BusyMark {
 public:
  explicit BusyMark(Atomic<bool>& busy) noexcept
      : busy_{busy}, before_{busy.load(std::memory_order_relaxed)} {
    busy_.store(true, std::memory_order_relaxed);
    fence(std::memory_order_release);  // keeps later stores after the mark
  }
  ~BusyMark() { busy_.store(before_, std::memory_order_release); }
  BusyMark(const BusyMark&) = delete;
  BusyMark& operator=(const BusyMark&) = delete;

 private:
  Atomic<bool>& busy_;
  bool before_;
};

}  // namespace ts
