// One processor for all threads of an image: exactly one of them runs at a time, chosen here.
//
// On real processors each run of a multi-threaded program differs. Here two runs make the same
// calls in the same order, and yet each thread is a real one to the allocator.
//
// The baton. Everything in here, and whatever a thread does between two calls of before(), is done
// by the thread that holds the baton. hand_to() stores the next one's word (a release), which that
// thread finds in wait() (an acquire); so each sees all that was done before, and needs no further
// synchronisation. A thread that ends hands over first, and then runs its exit hooks; the next one
// begins by joining it, so those also run alone.
#pragma once

#include <cstdint>

#include "replay/epochs.h"
#include "replay/load.h"
#include "replay/pages.h"
#include "replay/settings.h"
#include "replay/slot.h"
#include "replay/threads.h"

namespace ts::replay {

class VirtualProcessor {
 public:
  VirtualProcessor(const plan::Image& image, const Settings& settings, const Tickets& tickets,
                   Threads& threads, const Epochs& epochs, const Slot* slots);

  // Call before each operation, from its thread: returns when it is to run, and can.
  void before(ThreadRun& self);

  // The new thread's first step, and its creator's last.
  void arrive(ThreadRun& self);
  void started(ThreadRun& fresh);

  // `self` has no operations left. Returns the thread to hand to, or plan::none.
  std::uint32_t leave(const ThreadRun& self, bool ends);
  void hand_to(std::uint32_t thread) const;

  const Schedule& schedule() const { return schedule_; }
  const Share* shares() const { return shares_.begin(); }  // by number; among those that have left

 private:
  std::uint32_t choose();
  bool is_runnable(std::uint32_t thread) const;
  bool is_to_run(const ThreadRun& self) const;
  void wait(ThreadRun& self);

  const plan::Image& image_;
  const Settings& settings_;
  const Tickets& tickets_;
  Threads& threads_;
  const Epochs& epochs_;
  const Slot* slots_;
  Mapped<Schedule::Client> clients_;
  Mapped<Share> shares_;
  Schedule schedule_;
  std::uint32_t next_ = 0;              // for `recorded`: the next operation
  std::uint64_t left_ = 0;              // calls of the tick
  std::uint32_t to_join_ = plan::none;  // the thread that ended last
};

}  // namespace ts::replay
