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

#include <cerrno>
#include <cstdint>

#include "common/system.h"
#include "replay/load.h"
#include "replay/memory.h"
#include "replay/settings.h"
#include "replay/threads.h"
#include "replay/waiting.h"

namespace ts::replay {

class VirtualProcessor {
 public:
  VirtualProcessor(const plan::Image& image, const Settings& settings, Threads& threads,
                   const Epochs& epochs, const Slot* slots)
      : image_{image},
        settings_{settings},
        threads_{threads},
        epochs_{epochs},
        slots_{slots},
        schedule_{settings.discipline, settings.seed, settings.tickets, image.threads} {
    schedule_.add(0);
  }

  // Call before each operation, from its thread: returns when it is to run, and can.
  void before(ThreadRun& self) {
    while (!is_to_run(self)) {
      const std::uint32_t next = choose();
      if (next == self.number) continue;
      hand_to(next);
      wait(self);
    }
    const plan::Operation& operation = image_.operation_table[self.next];
    ++next_;
    if (plan::is_call(operation.kind)) --left_;
  }

  // The new thread's first step, and its creator's last.
  void arrive(ThreadRun& self) {
    self.is_there.open();
    wait(self);
  }

  void started(ThreadRun& fresh) {
    fresh.is_there.pass();
    schedule_.add(fresh.number);
  }

  // `self` has no operations left. Returns the thread to hand to, or plan::none.
  std::uint32_t leave(const ThreadRun& self, bool ends) {
    if (ends) to_join_ = self.number;
    schedule_.remove(self.number);
    return schedule_.is_empty() ? plan::none : choose();
  }

  void hand_to(std::uint32_t thread) const {
    // release: pairs with the acquire in wait.
    threads_[thread].baton.store(1, std::memory_order_release);
    futex_wake_all(threads_[thread].baton);
  }

  const Schedule& schedule() const { return schedule_; }

 private:
  std::uint32_t choose() {
    if (settings_.order == Order::recorded) {
      // At the end also threads that call nothing, which have to leave too.
      return next_ < image_.operations ? image_.operation_table[next_].thread : schedule_.first();
    }
    left_ = settings_.quantum;
    const std::uint32_t chosen =
        schedule_.next([this](std::uint32_t thread) { return is_runnable(thread); });
    // In recorded order, all can run (plan.h).
    if (chosen == no_thread) fail_internal("no thread can run: the plan is wrong", EDEADLK);
    return chosen;
  }

  bool is_runnable(std::uint32_t thread) const {
    const ThreadRun& run = threads_[thread];
    if (run.next == plan::none) return true;  // it only has to leave
    if (!run.is_inside && !epochs_.may_enter(run.epoch)) return false;
    const plan::Operation& operation = image_.operation_table[run.next];
    if (operation.kind == plan::Kind::thread_begin) return threads_.have_ended(operation.turn);
    return (operation.flags & plan::flag_waits) == 0 ||
           slots_[operation.slot].turn.has_come(operation.turn);
  }

  bool is_to_run(const ThreadRun& self) const {
    if (settings_.order == Order::recorded) return next_ == self.next;
    const plan::Operation& operation = image_.operation_table[self.next];
    return (!plan::is_call(operation.kind) || left_ != 0) && is_runnable(self.number);
  }

  void wait(ThreadRun& self) {
    while (self.baton.load(std::memory_order_acquire) == 0) futex_wait(self.baton, 0);
    // relaxed: the next to store holds the baton from here on
    self.baton.store(0, std::memory_order_relaxed);
    if (to_join_ == plan::none) return;
    threads_.wait_joined(to_join_);
    to_join_ = plan::none;
  }

  const plan::Image& image_;
  const Settings& settings_;
  Threads& threads_;
  const Epochs& epochs_;
  const Slot* slots_;
  Schedule schedule_;
  std::uint32_t next_ = 0;              // for `recorded`: the next operation
  std::uint64_t left_ = 0;              // calls of the tick
  std::uint32_t to_join_ = plan::none;  // the thread that ended last
};

}  // namespace ts::replay
