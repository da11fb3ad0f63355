// A mark by which the child of a fork finds state that another thread was changing.
#pragma once

#include "base/atomic.h"

namespace ts {

// A mark that a thread is changing its own state, for as long as this object lives; marks of one
// thread nest. If it is set in the child of a fork, the state was caught in mid-change and is
// unusable. The argument: until a fork has write-protected and flushed a page, the parent's stores
// to it reach the child too; afterwards they fault and wait. So the child sees, for each thread,
// all its stores up to one point of its program order. The barriers keep that order: set, change,
// clear.
class BusyMark {
 public:
  explicit BusyMark(Atomic<bool>& busy) noexcept
      : busy_{busy}, before_{busy.load(std::memory_order_relaxed)} {
    busy_.store(true, std::memory_order_relaxed);
    fence(std::memory_order_release);  // keeps later stores behind the mark
  }
  ~BusyMark() { busy_.store(before_, std::memory_order_release); }
  BusyMark(const BusyMark&) = delete;
  BusyMark& operator=(const BusyMark&) = delete;

 private:
  Atomic<bool>& busy_;
  bool before_;
};

}  // namespace ts
