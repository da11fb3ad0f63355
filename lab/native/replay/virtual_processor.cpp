// Which thread runs next; see virtual_processor.h.
#include "replay/virtual_processor.h"

#include <cerrno>

#include "common/system.h"

namespace ts::replay {

VirtualProcessor::VirtualProcessor(const plan::Image& image, const Settings& settings,
                                   const Tickets& tickets, Threads& threads, const Epochs& epochs,
                                   const Slot* slots)
    : image_{image},
      settings_{settings},
      tickets_{tickets},
      threads_{threads},
      epochs_{epochs},
      slots_{slots},
      clients_{image.threads, Backing::shared},
      shares_{image.threads, Backing::shared},
      schedule_{settings.discipline, settings.seed, tickets.denominator(), clients_.begin(),
                image.threads} {
  started(threads[0]);
}

bool VirtualProcessor::is_runnable(std::uint32_t thread) const {
  const ThreadRun& run = threads_[thread];
  if (run.next == plan::none) return true;  // it only has to leave
  if (!run.is_inside && !epochs_.may_enter(run.epoch)) return false;
  const plan::Operation& operation = image_.operation_table[run.next];
  if (static_cast<plan::Kind>(operation.kind) == plan::Kind::start) {
    return threads_.have_ended(operation.turn);
  }
  return (operation.flags & plan::flag_waits) == 0 ||
         slots_[operation.slot].turn.has_come(operation.turn);
}

std::uint32_t VirtualProcessor::choose() {
  if (settings_.order == Order::recorded) {
    // At the end also threads that call nothing, which have to leave too.
    return next_ < image_.operations ? image_.operation_table[next_].thread
                                     : schedule_.client(0).share.thread;
  }
  left_ = settings_.quantum;
  const std::uint32_t chosen =
      schedule_.next([this](std::uint32_t thread) { return is_runnable(thread); });
  // In recorded order, all can run (plan.h).
  if (chosen == no_thread) fail_internal("no thread can run: the plan is wrong", EDEADLK);
  return chosen;
}

bool VirtualProcessor::is_to_run(const ThreadRun& self) const {
  if (settings_.order == Order::recorded) return next_ == self.next;
  const plan::Operation& operation = image_.operation_table[self.next];
  const bool is_call = plan::is_call(static_cast<plan::Kind>(operation.kind));
  return (!is_call || left_ != 0) && is_runnable(self.number);
}

void VirtualProcessor::before(ThreadRun& self) {
  while (!is_to_run(self)) {
    const std::uint32_t next = choose();
    if (next == self.number) continue;
    hand_to(next);
    wait(self);
  }
  const plan::Operation& operation = image_.operation_table[self.next];
  ++next_;
  if (plan::is_call(static_cast<plan::Kind>(operation.kind))) --left_;
}

void VirtualProcessor::hand_to(std::uint32_t thread) const {
  // release: pairs with the acquire in wait.
  threads_[thread].baton.store(1, std::memory_order_release);
  futex_wake_all(threads_[thread].baton);
}

void VirtualProcessor::wait(ThreadRun& self) {
  while (self.baton.load(std::memory_order_acquire) == 0) futex_wait(self.baton, 0);
  self.baton.store(0, std::memory_order_relaxed);  // the next to store holds the baton from here on
  if (to_join_ == plan::none) return;
  threads_.wait_joined(to_join_);
  to_join_ = plan::none;
}

void VirtualProcessor::arrive(ThreadRun& self) {
  self.is_there.open();
  wait(self);
}

void VirtualProcessor::started(ThreadRun& fresh) {
  if (fresh.number != 0) fresh.is_there.pass();
  if (!schedule_.add(fresh.number, tickets_.of(fresh.number))) {
    fail_internal("the schedule has no place for a thread", EINVAL);
  }
}

std::uint32_t VirtualProcessor::leave(const ThreadRun& self, bool ends) {
  if (ends) to_join_ = self.number;
  shares_[self.number] = schedule_.remove(self.number);
  return schedule_.threads() != 0 ? choose() : plan::none;
}

}  // namespace ts::replay
