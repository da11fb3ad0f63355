// One processor for all threads of an image: exactly one of them runs, and which one is decided
// here.
//
// On real processors each run of a program with threads is another one. Here two runs make the same
// calls in the same order, and yet each thread is a real one to the allocator.
//
// The baton. Everything in here, and whatever a thread does between two calls of before(), is done
// by the thread that holds the baton. hand_to() stores the next one's word (a release), which
// that thread finds in wait() (an acquire); so each sees all that was done before, and no further
// synchronisation is needed. A thread that ends hands over first, and then runs its exit hooks; the
// next one begins by joining it, so those, too, run alone.
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
  VirtualProcessor(const plan::Plan& plan, const plan::Image& image, const Settings& settings,
                   const Tickets& tickets, Threads& threads, const Epochs& epochs,
                   const Slot* slots);

  // Before each operation, by the thread whose it is: returns when it is to run, and can.
  void before(ThreadRun& self, const plan::Operation& operation);

  // The new thread's first step, and its creator's last.
  void arrive(ThreadRun& self);
  void started(ThreadRun& fresh);

  // `self` has no operations left. Returns the thread to hand to; plan::none: there is no other.
  std::uint32_t leave(const ThreadRun& self, bool ends);
  void hand_to(std::uint32_t thread) const;

  const Schedule& schedule() const { return schedule_; }
  const Share* shares() const { return shares_.begin(); }  // by number; of those that have left
  const MeterChange* changes() const { return changes_.size() != 0 ? changes_.begin() : nullptr; }

 private:
  std::uint32_t choose();
  bool is_runnable(std::uint32_t thread) const;
  void wait(ThreadRun& self);
  std::uint32_t next_run();
  std::uint32_t next_idle();  // threads that call nothing have no run, but have to leave, too

  const plan::Image& image_;
  const plan::Run* runs_;
  const plan::Thread* planned_;
  const Settings& settings_;
  const Tickets& tickets_;
  Threads& threads_;
  const Epochs& epochs_;
  const Slot* slots_;
  Mapped<Schedule::Seat> seats_;
  Mapped<Share> shares_;
  Mapped<MeterChange> changes_;
  Schedule schedule_;
  std::uint64_t run_ = 0;               // of `recorded`
  std::uint32_t idle_ = 0;              // likewise; thread 0 leaves by itself
  std::uint64_t left_ = 0;              // operations of the run, or calls of the tick
  std::uint32_t to_join_ = plan::none;  // the thread that ended last
};

}  // namespace ts::replay
