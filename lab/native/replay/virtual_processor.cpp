// Which thread runs next; see virtual_processor.h.
#include "replay/virtual_processor.h"

#include <cerrno>

#include "common/system.h"

namespace ts::replay {

VirtualProcessor::VirtualProcessor(const plan::Plan& plan, const plan::Image& image,
                                   const Settings& settings, const Tickets& tickets,
                                   Threads& threads, const Epochs& epochs, const Slot* slots)
    : image_{image},
      runs_{plan.runs(image)},
      planned_{plan.threads(image)},
      settings_{settings},
      tickets_{tickets},
      threads_{threads},
      epochs_{epochs},
      slots_{slots},
      seats_{image.threads, Backing::shared},
      shares_{image.threads, Backing::shared},
      changes_{settings.meters, Backing::shared},
      schedule_{settings.discipline, settings.seed, tickets.denominator(), seats_.begin(),
                image.threads} {
  if (settings.order == Order::recorded) {
    left_ = image.runs != 0 ? runs_[0].operations : 0;
  } else {
    if (settings.meters != 0) schedule_.log_to(changes_.begin(), changes_.size());
    started(threads[0]);
  }
}

bool VirtualProcessor::is_runnable(std::uint32_t thread) const {
  if (threads_[thread].next == threads_[thread].end) return true;  // it has only to leave
  const plan::Operation& operation = *threads_[thread].next;
  switch (static_cast<plan::Kind>(operation.kind)) {
    case plan::Kind::enter:
      return epochs_.may_enter(operation.slot);
    case plan::Kind::start:
      return threads_.have_ended(operation.turn);
    default:
      return (operation.flags & plan::flag_waits) == 0 ||
             slots_[operation.slot].turn.has_come(operation.turn);
  }
}

std::uint32_t VirtualProcessor::choose() {
  left_ = settings_.quantum;
  const std::uint32_t chosen =
      schedule_.next([this](std::uint32_t thread) { return is_runnable(thread); });
  // check_plan has found an order in which all can run.
  if (chosen == no_thread) fail_internal("no thread can run: the plan is wrong", EDEADLK);
  return chosen;
}

std::uint32_t VirtualProcessor::next_run() {
  if (++run_ >= image_.runs) return next_idle();
  left_ = runs_[run_].operations;
  return runs_[run_].thread;
}

std::uint32_t VirtualProcessor::next_idle() {
  while (++idle_ < image_.threads) {
    if (planned_[idle_].operations == 0) return idle_;
  }
  return plan::none;
}

void VirtualProcessor::before(ThreadRun& self, const plan::Operation& operation) {
  if (settings_.order == Order::recorded) {
    while (left_ == 0) {
      const std::uint32_t next = next_run();
      if (next == self.number) continue;
      hand_to(next);
      wait(self);
    }
    --left_;
    return;
  }
  const bool is_call = plan::is_call(static_cast<plan::Kind>(operation.kind));
  while ((is_call && left_ == 0) || !is_runnable(self.number)) {
    const std::uint32_t next = choose();
    if (next == self.number) continue;
    hand_to(next);
    wait(self);
  }
  if (is_call) --left_;
}

void VirtualProcessor::hand_to(std::uint32_t thread) const {
  // release: pairs with the acquire in wait.
  threads_[thread].baton.store(1, std::memory_order_release);
  futex_wake_all(threads_[thread].baton);
}

void VirtualProcessor::wait(ThreadRun& self) {
  while (self.baton.load(std::memory_order_acquire) == 0) futex_wait(self.baton, 0);
  self.baton.store(0, std::memory_order_relaxed);  // the next to store holds the baton from here
  if (to_join_ == plan::none) return;
  threads_.wait_gone(to_join_);
  to_join_ = plan::none;
}

void VirtualProcessor::arrive(ThreadRun& self) {
  self.is_there.open();
  wait(self);
}

void VirtualProcessor::started(ThreadRun& fresh) {
  if (fresh.number != 0) fresh.is_there.pass();
  if (settings_.order == Order::recorded) return;
  if (!schedule_.add(fresh.number, tickets_.of(fresh.number))) {
    fail_internal("the schedule has no place for a thread", EINVAL);
  }
}

std::uint32_t VirtualProcessor::leave(const ThreadRun& self, bool ends) {
  if (ends) to_join_ = self.number;
  if (settings_.order == Order::recorded) return next_run();
  shares_[self.number] = schedule_.remove(self.number);
  return schedule_.threads() != 0 ? choose() : plan::none;
}

}  // namespace ts::replay
